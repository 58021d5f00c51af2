"""One step of one proxy: observe, decide, act, apply. The claim is taken before, by whoever calls."""

from __future__ import annotations

import logging
import random
from datetime import datetime, timedelta

from providers.base import DeleteStyle, Provider
from providers.config import EXTERNAL
from providers.errors import InstanceNotFound, ProviderError, Unavailable
from providers.instances import Identity, InstanceRequest, Placement, hash_instance
from providers.registry import Providers, entry_of
from proxyfleet.conf import settings
from proxyfleet.fleet import claims, cloudinit
from proxyfleet.fleet.actions import Action, CreateInstance, DeleteInstance, Stumble, SweepStrays
from proxyfleet.fleet.claims import Claim, ClaimLost
from proxyfleet.fleet.decisions import decide, wants_observation
from proxyfleet.fleet.facts import Gone, Observation, Seen, Snapshot, Unobserved, Unreadable
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.outcomes import Outcome, conclude, prepare
from proxyfleet.fleet.phases import Phase
from proxyfleet.fleet.ports import ports
from proxyfleet.observability import metrics, tracing

logger = logging.getLogger(__name__)


def reconcile(held: Claim, providers: Providers, now: datetime) -> None:
    """Carry one proxy one step towards its spec, and give the claim back.

    The step that follows, if any, is due as ``next_reconcile_at`` says. A result that came too late is dropped.
    """
    entry, action, result = held.proxy.lane or EXTERNAL, "Unknown", "error"
    try:
        with (
            tracing.span("reconcile", proxy=str(held.proxy), provider=entry) as span,
            metrics.timed(metrics.reconcile_duration.observe),
        ):
            action, result = _step(held, providers, now)
            span.set_attributes({"action": action, "result": result})
    except ClaimLost as lost:
        result = "ClaimLost"
        logger.info("Dropped a late result: %s", lost)
    finally:
        metrics.reconciles.labels(entry, action, result).inc()


def _step(held: Claim, providers: Providers, now: datetime) -> tuple[str, str]:
    """What was done, and what came of it: "ok", or the reason of the provider's error."""
    try:
        user_data, problem = cloudinit.resolve(held.proxy), ""
    except cloudinit.Unresolved as error:
        user_data, problem = None, str(error)
    snapshot = take_snapshot(held.proxy, user_data, problem, providers, now)
    observation = _observe(snapshot, providers, now)
    action = decide(snapshot, observation, now)
    if before := prepare(snapshot, action):
        claims.apply(held, before, now=now, keep=True)
    try:
        outcome = _act(action, held.proxy, snapshot, user_data, providers)
        if isinstance(action, CreateInstance | DeleteInstance | SweepStrays):
            logger.info("%s: %s is done", held.proxy, type(action).__name__)
    except ProviderError as error:
        logger.warning("%s: %s failed: %s", held.proxy, type(action).__name__, error.detail)
        outcome = error
    claims.apply(held, conclude(snapshot, observation, action, outcome, now=now, jitter=random.random()), now=now)
    result = action.error if isinstance(action, Stumble) else outcome
    return type(action).__name__, result.reason if isinstance(result, ProviderError) else "ok"


def take_snapshot(
    proxy: Proxy, user_data: bytes | None, cloud_init_problem: str, providers: Providers, now: datetime
) -> Snapshot:
    deleting = proxy.deletion_requested_at is not None
    external = proxy.is_external
    configured = providers.names()
    profile = providers.profile(entry_of(proxy.provider_id) if proxy.provider_id else proxy.provider)
    provisioned = next((c for c in proxy.conditions if c["type"] == "Provisioned" and c["status"] == "Unknown"), None)
    return Snapshot(
        external=external,
        phase=Phase(proxy.phase),
        reason=proxy.reason,
        message=proxy.message,
        generation=proxy.generation,
        deletion_requested_at=proxy.deletion_requested_at,
        skip_cleanup=proxy.skip_cleanup,
        draining_since=proxy.draining_since,
        drain=timedelta(seconds=proxy.drain_seconds),
        active_leases=ports.leases.active(proxy.pk, now) if deleting or proxy.provider_id else 0,
        desired_hash="" if external or cloud_init_problem else desired_hash(proxy, user_data),
        cloud_init_problem=cloud_init_problem,
        provider=proxy.provider,
        provider_known=proxy.provider in configured,
        instance_provider_known=bool(proxy.provider_id) and entry_of(proxy.provider_id) in configured,
        provider_id=proxy.provider_id,
        instance_hash=proxy.instance_hash,
        instance_serial=proxy.instance_serial,
        creating_hash=proxy.creating_hash,
        creating_provider=proxy.creating_provider,
        creating_provider_known=proxy.creating_provider in configured,
        failed_hash=proxy.failed_hash,
        address=(proxy.address, proxy.address_port) if proxy.address and proxy.address_port else None,
        endpoint=(proxy.endpoint_host, proxy.port) if external else None,
        port=proxy.port,
        verdict=proxy.current_verdict,
        outcome=proxy.last_outcome,
        health_message=proxy.health_message,
        provisioning_since=proxy.provisioning_since,
        provision_timeout=timedelta(seconds=settings().provision_timeout),
        error_since=proxy.error_since,
        call_errors=proxy.call_errors,
        instance_failures=proxy.instance_failures,
        known_error=(provisioned["reason"], provisioned["message"]) if provisioned else None,
        poll=timedelta(seconds=profile.poll_seconds),
        delete_is_final=profile.delete is DeleteStyle.GONE,
        retry_at=proxy.retry_at,
    )


def desired_hash(proxy: Proxy, user_data: bytes | None) -> str:
    """Of everything whose change makes the instance obsolete."""
    return hash_instance(
        {
            "provider": proxy.provider,
            "zone": proxy.zone,
            "machineType": proxy.machine_type,
            "image": proxy.image,
            "userData": None if user_data is None else user_data.hex(),
            "port": proxy.port,
            "replacement": proxy.replacement,
        }
    )


def _observe(snapshot: Snapshot, providers: Providers, now: datetime) -> Observation:
    if not wants_observation(snapshot, now):
        return Unobserved()
    try:
        return Seen(providers.get(entry_of(snapshot.provider_id)).get(snapshot.provider_id))
    except InstanceNotFound:
        return Gone()
    except ProviderError as error:
        logger.warning("%s can't be read: %s", snapshot.provider_id, error.detail)
        return Unreadable(error)


def _act(action: Action, proxy: Proxy, snapshot: Snapshot, user_data: bytes | None, providers: Providers) -> Outcome:
    match action:
        case CreateInstance():
            return providers.get(proxy.provider).create(
                InstanceRequest(
                    identity=Identity(
                        fleet_id=settings().fleet_id,
                        proxy_uid=proxy.uid,
                        namespace=proxy.namespace,
                        name=proxy.name,
                        instance_hash=snapshot.desired_hash,
                    ),
                    port=proxy.port,
                    placement=Placement(zone=proxy.zone, machine_type=proxy.machine_type, image=proxy.image),
                    user_data=user_data,
                )
            )
        case DeleteInstance():
            providers.get(entry_of(snapshot.provider_id)).delete(snapshot.provider_id)
        case SweepStrays():
            _sweep_strays(proxy, providers.get(proxy.creating_provider))
    return None


def _sweep_strays(proxy: Proxy, provider: Provider) -> None:
    """Delete every instance that names this proxy as its owner: the row holds none."""
    listed = provider.list()
    if listed.is_partial:
        raise Unavailable(
            f"{', '.join(listed.unreachable)} did not answer: an interrupted create may have left something there"
        )
    for instance in listed:
        if instance.identity.proxy_uid == proxy.uid:
            provider.delete(instance.provider_id)

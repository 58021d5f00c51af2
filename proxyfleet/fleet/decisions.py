"""What to do next about one proxy: pure, first match wins.

``decide`` sees what is wanted, what the row says and what the provider says, and names one action. It is safe to crash
between any two lines of what carries the action out: the next run derives the same action again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from providers.errors import Blocked, PermanentError
from providers.instances import Instance, InstanceState
from proxyfleet.fleet.actions import (
    Action,
    CreateInstance,
    DeleteInstance,
    Drain,
    ForgetInstance,
    Release,
    Settle,
    Stumble,
    SweepStrays,
)
from proxyfleet.fleet.facts import Address, Gone, Observation, Seen, Snapshot, Unobserved, Unreadable
from proxyfleet.fleet.phases import UNRESOLVED_RECHECK, Phase, Verdict

INSTANCE_GIVEN_UP = frozenset({"InstanceStopped", "InstanceFailed", "ProvisionTimeout"})
"""Reasons for which the reconciler itself deletes an instance to make another."""


def drain_ends(s: Snapshot, now: datetime) -> datetime | None:
    """Until when leases that are out hold the instance back; None when nothing does."""
    started = s.deletion_requested_at or s.draining_since or now
    until = started + s.drain
    return until if s.active_leases and now < until else None


def is_backing_off(s: Snapshot, now: datetime) -> bool:
    return s.retry_at is not None and now < s.retry_at


def wants_observation(s: Snapshot, now: datetime) -> bool:
    """Is there an instance to ask for, a provider to ask, and is it time to?"""
    if s.external or not s.provider_id or not s.instance_provider_known:
        return False
    if s.deletion_requested_at is not None and s.skip_cleanup:
        return False
    return not is_backing_off(s, now)


def decide(s: Snapshot, observation: Observation, now: datetime) -> Action:
    if s.deletion_requested_at is not None:
        return _terminate(s, observation, now)
    if s.external:
        return _settle_at(s, s.endpoint)
    if s.cloud_init_problem:
        return Settle(_left_alone(s), "CloudInitError", s.cloud_init_problem, UNRESOLVED_RECHECK)
    if not s.provider_known:
        return _not_configured(s, _left_alone(s))
    if s.provider_id and s.instance_hash != s.desired_hash:
        return _replace(s, observation, now)
    if s.failed_hash == s.desired_hash:
        return Settle(Phase.FAILED, s.reason, s.message)
    if not s.provider_id:
        return _create(s, now)
    match observation:
        case Unobserved():
            return _carry_on(s, _until_retry(s, now))
        case Gone() if s.reason in INSTANCE_GIVEN_UP:
            return ForgetInstance(Phase.PROVISIONING, s.reason, s.message, lost=False)
        case Gone():
            return ForgetInstance(
                Phase.PROVISIONING, "InstanceLost", "The instance is gone; another is made.", lost=True
            )
        case Unreadable(error):
            return Stumble(_carry_on(s, None), error)
        case Seen(instance):
            return _follow(s, instance, now)


def _terminate(s: Snapshot, observation: Observation, now: datetime) -> Action:
    if s.external:
        return Release()
    if s.skip_cleanup:
        return Release(abandoned=bool(s.provider_id or s.creating_hash))
    if s.provider_id:
        deleting = ("DeletingInstance", "Deletion was asked; the instance is being deleted.")
        return _remove(s, observation, now, Phase.TERMINATING, *deleting)
    if not s.creating_hash:
        return Release()
    return _sweep_strays(s, Phase.TERMINATING, now)


def _replace(s: Snapshot, observation: Observation, now: datetime) -> Action:
    obsolete = ("InstanceObsolete", "The spec changed; the instance is replaced.")
    return _remove(s, observation, now, Phase.REPLACING, *obsolete)


def _remove(s: Snapshot, observation: Observation, now: datetime, phase: Phase, reason: str, message: str) -> Action:
    """Drain, delete through the provider that made it, and forget it once that provider says it is gone."""
    if isinstance(observation, Gone):
        return ForgetInstance(phase, reason, message, lost=False)
    if until := drain_ends(s, now):
        return Drain(phase, until)
    if not s.instance_provider_known:
        return _not_configured(s, phase)
    match observation:
        case Unobserved():
            # A step back in a backoff says nothing new.
            steady = s.phase is phase
            return Settle(phase, s.reason if steady else reason, s.message if steady else message, _until_retry(s, now))
        case Unreadable(error) if not isinstance(error, PermanentError | Blocked):
            return Stumble(Settle(phase, reason, message), error)
        case Seen(instance) if instance.state is InstanceState.DELETING:
            return Settle(phase, reason, message, s.poll)
    # Also when `get` failed for good: delete is idempotent and can finish where get cannot.
    return DeleteInstance(phase, reason, message)


def _create(s: Snapshot, now: datetime) -> Action:
    if s.creating_hash and s.creating_hash != s.desired_hash:
        return _sweep_strays(s, Phase.PROVISIONING, now)
    if is_backing_off(s, now):
        return Settle(s.phase, s.reason, s.message, _until_retry(s, now))
    return CreateInstance()


def _sweep_strays(s: Snapshot, phase: Phase, now: datetime) -> Action:
    if not s.creating_provider_known:
        return _not_configured(s, phase)
    if is_backing_off(s, now):
        return Settle(phase, s.reason, s.message, _until_retry(s, now))
    return SweepStrays(phase)


def _follow(s: Snapshot, instance: Instance, now: datetime) -> Action:
    match instance.state:
        case InstanceState.RUNNING if instance.address:
            return _settle_at(s, (instance.address, instance.port or s.port))
        case InstanceState.STOPPED:
            return _give_up(instance, "InstanceStopped", "The instance stopped.")
        case InstanceState.FAILED:
            return _give_up(instance, "InstanceFailed", "The instance failed.")
        case InstanceState.DELETING:
            reason = s.reason if s.reason in INSTANCE_GIVEN_UP else "InstanceDeleting"
            return Settle(Phase.PROVISIONING, reason, "The provider is deleting the instance; another is made.", s.poll)
    if s.provisioning_since is not None and now - s.provisioning_since > s.provision_timeout:
        seconds = s.provision_timeout.total_seconds()
        return _give_up(instance, "ProvisionTimeout", f"The instance had no address after {seconds:.0f} s.")
    if instance.state is InstanceState.RUNNING:
        return Settle(
            Phase.PROVISIONING, "AwaitingAddress", instance.message or "Running, without an address yet.", s.poll
        )
    return Settle(Phase.PROVISIONING, "InstanceProvisioning", instance.message or "The instance is being made.", s.poll)


def _give_up(instance: Instance, reason: str, message: str) -> DeleteInstance:
    return DeleteInstance(Phase.PROVISIONING, reason, instance.message or f"{message} Another is made.")


def _settle_at(s: Snapshot, address: Address | None) -> Settle:
    """Reachable at ``address``: health alone decides between Ready and Unhealthy, by a verdict on that very address."""
    if address == s.address and s.verdict is Verdict.HEALTHY:
        return Settle(Phase.READY, "ProbeSucceeded", "")
    if address == s.address and s.verdict is Verdict.UNHEALTHY:
        return Settle(Phase.UNHEALTHY, s.outcome or "ProbeFailed", s.health_message)
    waiting = Phase.PENDING if s.external else Phase.PROVISIONING
    return Settle(waiting, "AwaitingFirstProbe", "Reachable; no probe has given a verdict yet.")


def _carry_on(s: Snapshot, recheck: timedelta | None) -> Settle:
    """The provider has no news. Health still has its say: an unhealthy proxy must not be leased meanwhile."""
    if s.address is None:
        return Settle(s.phase, s.reason, s.message, recheck)
    return replace(_settle_at(s, s.address), recheck=recheck)


def _left_alone(s: Snapshot) -> Phase:
    """Something is missing that a new instance would need; one that exists goes on as its health allows."""
    return _carry_on(s, None).phase if s.provider_id else Phase.PENDING


def _not_configured(s: Snapshot, phase: Phase) -> Settle:
    made_by = s.provider_id.partition("://")[0] or s.creating_provider
    entry = made_by if made_by and s.provider_known else s.provider
    message = f"The providers file has no entry {entry!r}. Add it; to delete the proxy without it, skip its cleanup."
    return Settle(phase, "ProviderNotConfigured", message, UNRESOLVED_RECHECK)


def _until_retry(s: Snapshot, now: datetime) -> timedelta | None:
    return s.retry_at - now if s.retry_at is not None and s.retry_at > now else None

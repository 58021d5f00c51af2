"""The only writers of what is wanted: the admin, REST and the cluster's bridge all call these.

Each is one transaction that changes the row, appends an event and wakes the reconciler after the commit. ``actor``
names the person or token that asked; ``now`` is the caller's clock. Those that take the id of a proxy raise
Proxy.DoesNotExist when it has gone meanwhile.

What a custom resource says of its proxy, only the bridge may change here, which names itself by ``origin``; people
change it there (`ports.Cluster`), or make the proxy the database's for good. Else the row would say what the cluster
knows nothing of, until the bridge undoes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from proxyfleet.conf import settings
from proxyfleet.fleet import hints
from proxyfleet.fleet.admission import admit
from proxyfleet.fleet.claims import event_of, publish
from proxyfleet.fleet.columns import SPEC_COLUMNS, read_declared
from proxyfleet.fleet.differences import describe_differences
from proxyfleet.fleet.models import EventKind, Origin, Proxy
from proxyfleet.fleet.ports import ports
from proxyfleet.fleet.spec import InvalidSpec, check_identity


class NameTaken(InvalidSpec):
    """There is a proxy of this name, which is not on its way out."""


class NotAllowed(Exception):
    """The operation makes no sense for this proxy now; the message says why."""


def declare(
    namespace: str,
    name: str,
    spec: Mapping[str, Any],
    *,
    actor: str,
    now: datetime,
    origin: Origin = Origin.DATABASE,
    uid: UUID | None = None,
    generation: int = 1,
) -> Proxy:
    """A new proxy; that of a custom resource has its ``uid`` and ``generation``.

    Raises InvalidSpec when the spec or the name is wrong, NameTaken when there is one already.
    """
    check_identity(namespace, name)
    proxy = Proxy(
        namespace=namespace,
        name=name,
        origin=origin,
        generation=generation,
        revision=1,
        created_at=now,
        phase_changed_at=now,
    )
    if uid is not None:
        proxy.uid = uid
    proxy.spec = admit(spec)
    proxy.next_reconcile_at = now
    try:
        with transaction.atomic():
            proxy.save(force_insert=True)
            _record(proxy, EventKind.DECLARED, now, actor)
            publish(proxy)
            hints.wake([proxy.pk], now)
    except IntegrityError as error:
        if "proxy_name_unique" not in str(error):
            raise
        raise NameTaken(
            {"name": [f"the proxy {namespace}/{name} exists already: delete it, or take another name"]}
        ) from None
    return proxy


class OwnedByTheCluster(NotAllowed):
    """The proxy's custom resource says what is wanted of it."""

    def __init__(self, proxy: Proxy) -> None:
        todo = (
            "change or delete its Proxy object, by kubectl or the admin"
            if settings().cluster_sync
            else "turn the bridge on again (PROXYFLEET_CLUSTER_SYNC), or take the proxies of the cluster over by "
            "`manage.py leave_cluster`"
        )
        super().__init__(f"{proxy} is declared in the cluster: {todo}")


def update(
    proxy_id: int,
    spec: Mapping[str, Any],
    *,
    actor: str,
    now: datetime,
    origin: Origin = Origin.DATABASE,
    generation: int | None = None,
    restored_from: int | None = None,
) -> Proxy:
    """Another spec for a proxy that exists; the same spec changes nothing. Raises InvalidSpec, NotAllowed.

    ``generation`` is that of the custom resource the spec comes from: one that is not newer than the row's comes late
    and changes nothing, but in a cluster that was restored from a backup: then ``restored_from`` is the generation that
    the row is known to have. Without ``generation``, the row counts for itself.
    """
    wanted = admit(spec)
    with transaction.atomic():
        proxy = _locked(proxy_id)
        _check_owner(proxy, origin)
        if generation is not None and generation <= proxy.generation and proxy.generation != restored_from:
            return proxy
        if wanted.mode != proxy.mode:
            raise InvalidSpec({"mode": [f"is immutable: the proxy is {proxy.mode}; delete it and declare another"]})
        before = {column: getattr(proxy, column) for column in SPEC_COLUMNS}
        declared_before = read_declared(proxy)
        proxy.spec = wanted
        changed = [column for column in SPEC_COLUMNS if getattr(proxy, column) != before[column]]
        if not changed and generation is None:
            return proxy
        _forget_backoff(proxy)
        if changed and generation == proxy.generation:
            # Leasing tells one spec from another by the generation.
            ports.leases.publish(proxy.pk, leasable=False, max_leases=proxy.max_leases, generation=0)
        proxy.generation = generation or proxy.generation + 1
        _save(proxy, *changed, "generation", *_BACKOFF)
        if changed:
            differences = describe_differences(declared_before, read_declared(proxy))
            _record(proxy, EventKind.SPEC_CHANGED, now, actor, message=differences)
        publish(proxy)
        hints.wake([proxy.pk], now)
    return proxy


def request_deletion(proxy_id: int, *, actor: str, now: datetime, origin: Origin = Origin.DATABASE) -> Proxy:
    """Ask for the proxy to go: no new leases from this commit on. Asking again changes nothing. Raises NotAllowed."""
    with transaction.atomic():
        proxy = Proxy.objects.select_for_update().get(pk=proxy_id)
        _check_owner(proxy, origin)
        if proxy.deletion_requested_at is not None:
            return proxy
        proxy.deletion_requested_at = now
        _forget_backoff(proxy)
        _save(proxy, "deletion_requested_at", *_BACKOFF)
        _record(proxy, EventKind.DELETION_REQUESTED, now, actor)
        publish(proxy)
        hints.wake([proxy.pk], now)
    return proxy


def skip_cleanup(proxy_id: int, *, actor: str, now: datetime, origin: Origin = Origin.DATABASE) -> Proxy:
    """Release the proxy at its deletion without its instance being deleted. What still runs is abandoned.

    Raises NotAllowed.
    """
    return _set_skip_cleanup(proxy_id, actor, now, origin, skipped=True)


def keep_cleanup(proxy_id: int, *, actor: str, now: datetime, origin: Origin = Origin.DATABASE) -> Proxy:
    """Take `skip_cleanup` back, if it is not too late. Raises NotAllowed."""
    return _set_skip_cleanup(proxy_id, actor, now, origin, skipped=False)


def leave_cluster(proxy_id: int, *, actor: str, now: datetime) -> Proxy:
    """Let the database own the spec of a proxy that its custom resource owned; all else stays as it is."""
    with transaction.atomic():
        proxy = Proxy.objects.select_for_update().get(pk=proxy_id)
        if proxy.origin != Origin.DATABASE:
            message = f"origin: {proxy.origin} → {Origin.DATABASE}"
            proxy.origin = Origin.DATABASE
            _save(proxy, "origin")
            _record(proxy, EventKind.SPEC_CHANGED, now, actor, message=message)
    return proxy


def replace(proxy_id: int, *, actor: str, now: datetime) -> Proxy:
    """Make another instance from the same spec, with a new address. Raises NotAllowed for an External proxy."""
    with transaction.atomic():
        proxy = _locked(proxy_id)
        if proxy.is_external:
            raise NotAllowed(f"{proxy} is External: what exists elsewhere can't be replaced from here")
        proxy.replacement += 1
        _forget_backoff(proxy)
        _save(proxy, "replacement", *_BACKOFF)
        _record(proxy, EventKind.REPLACEMENT_REQUESTED, now, actor)
        hints.wake([proxy.pk], now)
    return proxy


def cordon(proxy_id: int, *, actor: str, now: datetime) -> Proxy:
    """No new leases until it is uncordoned; leases that are out go on."""
    return _set_cordon(proxy_id, actor, now, cordoned=True)


def uncordon(proxy_id: int, *, actor: str, now: datetime) -> Proxy:
    """Leases are given again."""
    return _set_cordon(proxy_id, actor, now, cordoned=False)


def reconcile_now(proxy_id: int, *, now: datetime) -> None:
    """Look at the proxy at once: a backoff ends, and a Failed proxy is tried again."""
    with transaction.atomic():
        proxy = Proxy.objects.select_for_update().get(pk=proxy_id)
        _forget_backoff(proxy)
        proxy.save(update_fields=_BACKOFF)
        hints.wake([proxy.pk], now)


def _set_cordon(proxy_id: int, actor: str, now: datetime, *, cordoned: bool) -> Proxy:
    with transaction.atomic():
        proxy = _locked(proxy_id)
        if proxy.cordoned != cordoned:
            proxy.cordoned = cordoned
            _save(proxy, "cordoned")
            _record(proxy, EventKind.CORDONED if cordoned else EventKind.UNCORDONED, now, actor)
            publish(proxy)
    return proxy


def _set_skip_cleanup(proxy_id: int, actor: str, now: datetime, origin: Origin, *, skipped: bool) -> Proxy:
    with transaction.atomic():
        proxy = Proxy.objects.select_for_update().get(pk=proxy_id)
        _check_owner(proxy, origin)
        if proxy.skip_cleanup != skipped:
            proxy.skip_cleanup = skipped
            _forget_backoff(proxy)
            _save(proxy, "skip_cleanup", *_BACKOFF)
            kind = EventKind.SKIP_CLEANUP_REQUESTED if skipped else EventKind.SKIP_CLEANUP_WITHDRAWN
            _record(proxy, kind, now, actor)
            hints.wake([proxy.pk], now)
    return proxy


_BACKOFF = ("retry_at", "call_errors", "failed_hash")


def _forget_backoff(proxy: Proxy) -> None:
    """Something changed: what failed before may work now."""
    proxy.retry_at, proxy.call_errors, proxy.failed_hash = None, 0, ""


def _locked(proxy_id: int) -> Proxy:
    proxy = Proxy.objects.select_for_update().get(pk=proxy_id)
    if proxy.deletion_requested_at is not None:
        raise NotAllowed(f"{proxy} is being deleted")
    return proxy


def _check_owner(proxy: Proxy, origin: Origin) -> None:
    """Raises OwnedByTheCluster, even with the bridge off: once it is on again, the object would undo the change."""
    if proxy.origin == Origin.CLUSTER != origin:
        raise OwnedByTheCluster(proxy)


def _save(proxy: Proxy, *columns: str) -> None:
    """Write what a person can see to have changed, if only by the event that follows."""
    proxy.revision += 1
    proxy.save(update_fields=[*columns, "revision"])


def _record(proxy: Proxy, kind: EventKind, now: datetime, actor: str, *, message: str = "") -> None:
    event_of(proxy, kind, now, message=message, actor=actor).save()

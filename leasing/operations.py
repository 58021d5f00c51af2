"""All that can be done to a lease, for the API, the admin and the tasks alike. ``now`` is the caller's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from leasing import endings, queries
from leasing.allocation import Contended, Granted, Wish, grant
from leasing.errors import IdempotencyKeyReused, InvalidRequest, LeaseEnded, LeaseNotFound, NoProxyAvailable
from leasing.ids import uuid7
from leasing.models import REFUSALS, Cooldown, EndCause, IdempotencyKey, Lease, Report, Result
from proxyfleet.conf import settings
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.ports import ports
from proxyfleet.observability import metrics

FAILURES = frozenset({Result.TIMEOUT, Result.ERROR})
"""The proxy itself may be broken: it is probed."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """A client's mark on a request that it may send again."""

    key: str
    fingerprint: str
    """Tells requests with different content apart."""


def acquire(
    wish: Wish, *, count: int, ttl_seconds: int | None, now: datetime, request_key: RequestKey | None = None
) -> Sequence[Lease | Granted]:
    """Up to ``count`` leases on distinct proxies, at least one, each with its proxy.

    A time to live beyond the setting's is cut down to it. A repeated ``request_key`` gets the leases of the first.
    Raises NoProxyAvailable, Contended, IdempotencyKeyReused, and LeaseEnded when those of the first are over.
    """
    try:
        leases = _acquire(wish, count, ttl_seconds, now, request_key)
    except Exception as error:
        metrics.lease_requests.labels(_REFUSALS.get(type(error), "error")).inc()
        raise
    metrics.lease_requests.labels("granted").inc()
    return leases


_REFUSALS: Mapping[type[Exception], str] = {
    NoProxyAvailable: "no_proxy_available",
    Contended: "contended",
    IdempotencyKeyReused: "idempotency_key_reused",
    LeaseEnded: "lease_ended",
}
"""As the API calls them."""


def _acquire(
    wish: Wish, count: int, ttl_seconds: int | None, now: datetime, request_key: RequestKey | None
) -> Sequence[Lease | Granted]:
    ids = [uuid7(now) for _ in range(count)]
    if request_key is not None:
        ids, is_known = _ids_of(request_key, wish.owner, ids, now)
        if is_known and (before := _granted_before(ids, now)):
            return before
    try:
        granted = grant(wish, ids, now=now, expires_at=_expiry(ttl_seconds, now))
    except IntegrityError:
        # The same request is being served by another process, and was quicker.
        if request_key is None or not (before := _granted_before(ids, now)):
            raise
        return before
    if not granted and request_key is not None and (before := _going_on(ids, now)):
        return before  # or it was quicker, and has the slot that there was
    if not granted:
        raise NoProxyAvailable(queries.shortage(wish, now))
    return granted


def renew(lease_id: UUID, *, ttl_seconds: int | None, now: datetime) -> Lease:
    """The lease now ends ``ttl_seconds`` from now, be that later or sooner. Raises LeaseNotFound, LeaseEnded."""
    expires_at = _expiry(ttl_seconds, now)
    Lease.objects.filter(pk=lease_id, expires_at__gt=now).update(expires_at=expires_at)
    return queries.lease(lease_id, now)


def release(lease_id: UUID, *, now: datetime, cause: EndCause = EndCause.RELEASED) -> None:
    """The lease is over, whether by this call or before it. Not for use inside a transaction. Raises LeaseNotFound."""
    if not endings.release(lease_id, cause=cause, now=now):
        try:
            queries.lease(lease_id, now)
        except LeaseEnded:
            return


def report(
    lease_id: UUID, *, result: Result, target: str, cooldown_seconds: int | None, now: datetime
) -> datetime | None:
    """Note how a request to ``target`` went; the target of the lease, when empty.

    Returns the time until which the proxy rests for the target, if it does; a report only ever lengthens a cooldown.
    Raises LeaseNotFound, LeaseEnded, and InvalidRequest when a refusal names no target.
    """
    with transaction.atomic():
        # Held, so that it can't end, and its proxy not vanish, before what it says is written.
        lease = Lease.objects.select_for_update(of=("self",)).select_related("proxy").filter(pk=lease_id).first()
        if lease is None:
            raise queries.why_gone(lease_id)
        if lease.expires_at <= now:
            raise LeaseEnded(EndCause.EXPIRED, lease.expires_at)
        target = target or lease.target
        proxy = lease.proxy
        until = None
        if result in REFUSALS:
            if not target:
                raise InvalidRequest({"target": ["is needed: the lease is not for any one target"]})
            rest = timedelta(seconds=cooldown_seconds or settings().lease_cooldown)
            until = _rest(proxy, target, now + rest)
        Report.objects.create(
            lease_id=lease.pk,
            proxy_uid=proxy.uid,
            namespace=proxy.namespace,
            name=proxy.name,
            target=target,
            result=result,
            at=now,
        )
        if result in FAILURES:
            ports.prober.probe_soon([proxy.pk])
    metrics.reports.labels(result).inc()
    return until


def lift_cooldown(cooldown_id: int) -> None:
    """The proxy is leased for that target again. One that is lifted already stays so."""
    Cooldown.objects.filter(pk=cooldown_id).delete()


def expire(now: datetime) -> int:
    """End every lease whose time is over. Returns how many this call ended."""
    total = 0
    while True:
        found, ended = endings.end_expired(now)
        total += ended
        if found < endings.BATCH:
            return total


def _expiry(ttl_seconds: int | None, now: datetime) -> datetime:
    conf = settings()
    return now + timedelta(seconds=min(ttl_seconds or conf.default_lease_ttl, conf.max_lease_ttl))


def _ids_of(request_key: RequestKey, owner: str, ids: list[UUID], now: datetime) -> tuple[list[UUID], bool]:
    """The ids that belong to the key, ``ids`` if it is new, and whether it was known."""
    known, is_new = IdempotencyKey.objects.get_or_create(
        owner=owner,
        key=request_key.key,
        defaults={"fingerprint": request_key.fingerprint, "lease_ids": ids, "created_at": now},
    )
    if known.fingerprint != request_key.fingerprint:
        raise IdempotencyKeyReused
    return known.lease_ids, not is_new


def _granted_before(ids: Sequence[UUID], now: datetime) -> list[Lease]:
    """Those of the leases that were granted and go on. Raises LeaseEnded when all that were granted are over."""
    going_on = _going_on(ids, now)
    if not going_on:
        for lease_id in ids:
            try:
                queries.lease(lease_id, now)
            except LeaseNotFound:
                continue
    return going_on


def _going_on(ids: Sequence[UUID], now: datetime) -> list[Lease]:
    leases = Lease.objects.select_related("proxy").filter(pk__in=ids, expires_at__gt=now)
    return list(leases.order_by("created_at", "pk"))


def _rest(proxy: Proxy, target: str, until: datetime) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            insert into leasing_cooldown as cooldown (proxy_id, target, until) values (%s, %s, %s)
            on conflict (target, proxy_id) do update set until = greatest(cooldown.until, excluded.until)
            returning until
            """,
            [proxy.pk, target, until],
        )
        rests_until: datetime = cursor.fetchone()[0]
    return rests_until

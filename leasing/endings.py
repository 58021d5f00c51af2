"""How leases end: one statement for release, expiry and the end of a proxy.

It takes each lease away, keeps it as an EndedLease and frees its slot, or does none of it. Whoever ends leases locks
the load rows first, in the order of their ids, and the leases after; a grant never waits while it holds a lock. So no
two can deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from leasing.models import EndCause, ProxyLoad

BATCH = 500
"""Leases that one sweep ends at most: it holds the load rows of all their proxies."""

_END = """
with doomed as materialized (
  select id, proxy_id from leasing_lease lease where {which} limit {limit}
), held as materialized (
  select proxy_id from leasing_proxyload
  where proxy_id in (select proxy_id from doomed) order by proxy_id for no key update
), ended as (
  delete from leasing_lease lease using held
  where lease.proxy_id = held.proxy_id and lease.id in (select id from doomed) and {which}
  returning lease.*
), kept as (
  insert into leasing_endedlease (id, proxy_uid, namespace, name, owner, client, target, created_at, ended_at, cause)
  select ended.id, proxy.uid, proxy.namespace, proxy.name, ended.owner, ended.client, ended.target, ended.created_at,
    least(%(now)s, ended.expires_at), %(cause)s
  from ended join fleet_proxy proxy on proxy.id = ended.proxy_id
), freed as (
  update leasing_proxyload load
  set active = load.active - gone.n, ceiling = greatest(load.max_leases, load.active - gone.n), idle_since = %(now)s
  from (select proxy_id, count(*)::int as n from ended group by proxy_id) gone
  where load.proxy_id = gone.proxy_id
)
select (select count(*) from doomed), (select count(*) from ended)
"""

# A release that a power cut undoes costs nothing: the lease expires instead.
_WITHOUT_WAITING_FOR_THE_DISK = "(select set_config('synchronous_commit', 'off', true)) = 'off'"


class Ending(NamedTuple):
    found: int
    """Leases that were to end when the statement began; another process may have ended some of them first."""
    ended: int


def release(lease_id: UUID, *, cause: EndCause, now: datetime) -> bool:
    """End one lease. False when there is no such lease, or its time was over before.

    Not for use inside a transaction: its commit would not wait for the disk either.
    """
    which = f"lease.id = %(lease)s and lease.expires_at > %(now)s and {_WITHOUT_WAITING_FOR_THE_DISK}"
    return _end(which, {"lease": lease_id}, cause=cause, now=now).ended > 0


def end_expired(now: datetime, *, proxies: str = "", params: Mapping[str, Any] | None = None) -> Ending:
    """End up to BATCH leases whose time is over, the oldest first.

    ``proxies`` is a query for the ids of the proxies to look at, with ``params``; empty: all.
    """
    which = "lease.expires_at <= %(now)s"
    if proxies:
        which += f" and lease.proxy_id in ({proxies})"
    return _end(which, params or {}, cause=EndCause.EXPIRED, now=now, limit=BATCH)


def end_of_proxy(proxy_id: int, *, cause: str, now: datetime) -> int:
    """End all leases of a proxy; those whose time was over before ended by that. Returns how many ended by ``cause``.

    From here to the end of the caller's transaction, which holds the load row, no lease can appear.
    """
    ProxyLoad.objects.select_for_update(no_key=True).filter(pk=proxy_id).first()
    which = "lease.proxy_id = %(proxy)s and lease.expires_at {} %(now)s"
    _end(which.format("<="), {"proxy": proxy_id}, cause=EndCause.EXPIRED, now=now)
    return _end(which.format(">"), {"proxy": proxy_id}, cause=cause, now=now).ended


def _end(which: str, params: Mapping[str, Any], *, cause: str, now: datetime, limit: int | None = None) -> Ending:
    # The condition is asked again of each lease once its load row is held: it may have been renewed in between.
    with connection.cursor() as cursor:
        cursor.execute(
            _END.format(which=which, limit="all" if limit is None else limit),
            {**params, "cause": str(cause), "now": now},
        )
        return Ending(*cursor.fetchone())

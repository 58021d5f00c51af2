"""How leases end, by release, expiry or the end of a proxy: always one statement.

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

from leasing.database import fetch
from leasing.models import EndCause, ProxyLoad

BATCH = 500
"""Leases that one sweep ends at most: it holds the load rows of all their proxies."""

_KEPT = """
kept as (
  insert into leasing_endedlease (id, proxy_uid, namespace, name, owner, client, target, created_at, ended_at, cause)
  select ended.id, proxy.uid, proxy.namespace, proxy.name, ended.owner, ended.client, ended.target, ended.created_at,
    least(%(now)s::timestamptz, ended.expires_at), %(cause)s
  from ended join fleet_proxy proxy on proxy.id = ended.proxy_id
)"""

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
), {kept}, freed as (
  update leasing_proxyload load
  set active = load.active - gone.n, ceiling = greatest(load.max_leases, load.active - gone.n), idle_since = %(now)s
  from (select proxy_id, count(*)::int as n from ended group by proxy_id) gone
  where load.proxy_id = gone.proxy_id
)
select (select count(*) from doomed), (select count(*) from ended)
"""

# The same for one lease, which is half of what a crawler asks for: nothing to limit, to sort or to count.
# A release that a power cut undoes costs nothing, as the lease expires instead: it need not wait for the disk.
_RELEASE = f"""
with held as materialized (
  select load.proxy_id from leasing_proxyload load
  where load.proxy_id = (select lease.proxy_id from leasing_lease lease where lease.id = %(lease)s::uuid)
    and (select set_config('synchronous_commit', 'off', true)) = 'off'
  for no key update
), ended as (
  delete from leasing_lease lease using held
  where lease.id = %(lease)s::uuid and lease.proxy_id = held.proxy_id and lease.expires_at > %(now)s::timestamptz
  returning lease.*
), {_KEPT}, freed as (
  update leasing_proxyload load
  set active = load.active - 1, ceiling = greatest(load.max_leases, load.active - 1),
    idle_since = %(now)s::timestamptz
  from ended where load.proxy_id = ended.proxy_id
)
select count(*) from ended
"""  # noqa: S608  a part of ours


class Ending(NamedTuple):
    found: int
    """Leases that were to end when the statement began; another process may have ended some of them first."""
    ended: int


def release(lease_id: UUID, *, cause: EndCause, now: datetime) -> bool:
    """End one lease. False when there is no such lease, or its time was over before.

    Not for use inside a transaction: its commit would not wait for the disk either.
    """
    ((ended,),) = fetch(_RELEASE, {"lease": str(lease_id), "cause": str(cause), "now": now.isoformat()})
    return bool(ended)


def end_expired(now: datetime, *, among: str = "", params: Mapping[str, Any] | None = None) -> Ending:
    """End up to BATCH leases whose time is over, the oldest first.

    ``among`` is a further condition on a ``lease``, with its ``params``, that begins with "and"; empty: all.
    """
    which = f"lease.expires_at <= %(now)s {among}"
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
            _END.format(kept=_KEPT, which=which, limit="all" if limit is None else limit),
            {**params, "cause": str(cause), "now": now},
        )
        return Ending(*cursor.fetchone())

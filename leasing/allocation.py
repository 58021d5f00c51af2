"""Grants leases: the only code that raises the count of a proxy.

Any number of processes may grant at the same time. Each statement commits by itself, so that no lock outlives it:

1. Read the best candidates without locking anything. Only this read, of the truth, may end in "none".
2. Take a slot on as many as are wanted, passing over rows that another process holds at the moment.
3. When it held them all, wait for one, and take a slot if there still is one; else start over.

The condition is asked again by the very update that takes the slot, and leases are made only from the rows that it
changed: what was read before is a hint.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from leasing import endings
from leasing.models import Lease
from leasing.selectors import Selector

CANDIDATES = 16
"""Read for each lease that is wanted, so that processes which choose at once find free rows beside each other's."""
ATTEMPTS = 40
"""Each failed one means that others were served meanwhile; far beyond what contention has ever needed."""


class Contended(Exception):
    """Slots were free, but others took every one that we tried for. Ask again."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Which proxies would do, and for what."""

    selector: Selector
    target: str
    exclude: Sequence[str] = ()
    """Proxies not to lease, as "namespace/name"."""
    client: str = ""
    owner: str = ""


_SUITABLE = "load.leasable and load.active < load.max_leases"

# A scalar subquery and no anti-join: it costs one index lookup for each candidate, however many cooldowns there are.
_RESTED = """ and coalesce((
    select cooldown.until from leasing_cooldown cooldown
    where cooldown.target = %(target)s and cooldown.proxy_id = load.proxy_id
  ), '-infinity') <= %(now)s"""

_CANDIDATES = """
select load.proxy_id from leasing_proxyload load
where {suitable} and load.proxy_id in ({matching})
order by load.active, load.idle_since nulls first limit %(limit)s
"""

_TAKE_FREE = """
with pick as materialized (
  select load.proxy_id from leasing_proxyload load
  where load.proxy_id = any(%(candidates)s) and {suitable}
  order by load.active, load.idle_since nulls first limit %(wanted)s
  for no key update of load skip locked
), taken as (
  update leasing_proxyload load set active = load.active + 1, idle_since = %(now)s
  from pick where load.proxy_id = pick.proxy_id and load.leasable and load.active < load.max_leases
  returning load.proxy_id
)
"""

_TAKE_ONE = """
with taken as (
  update leasing_proxyload load set active = load.active + 1, idle_since = %(now)s
  where load.proxy_id = %(candidate)s and {suitable}
  returning load.proxy_id
)
"""

_LEASE = """
insert into leasing_lease (id, proxy_id, owner, client, target, created_at, expires_at)
select (%(ids)s::uuid[])[number], proxy_id, %(owner)s, %(client)s, %(target)s, %(now)s, %(expires_at)s
from (select proxy_id, row_number() over () as number from taken) numbered
returning id, proxy_id
"""


def matching(wish: Wish) -> tuple[str, dict[str, Any]]:
    """A query for the ids of the proxies that the wish names, whatever their state, and its parameters."""
    condition, params = wish.selector.sql("proxy.attributes")
    if wish.exclude:
        condition += " and proxy.namespace || '/' || proxy.name <> all(%(exclude)s)"
        params["exclude"] = list(wish.exclude)
    return f"select proxy.id from fleet_proxy proxy where {condition}", params  # noqa: S608  built here, from parts without a value in them


def grant(wish: Wish, ids: Sequence[UUID], *, now: datetime, expires_at: datetime) -> list[Lease]:
    """Lease up to ``len(ids)`` distinct proxies; none, when there was a moment at which no slot was free.

    The least loaded come first; of equals, the one that was idle for longest. ``ids`` become the ids of the leases.
    Raises Contended, and IntegrityError when a lease of one of these ids exists.
    """
    allocator = _Allocator(wish, now, expires_at)
    granted: list[Lease] = []
    for attempt in range(ATTEMPTS):
        wanted = ids[len(granted) :]
        candidates = allocator.candidates([lease.proxy_id for lease in granted], limit=CANDIDATES * len(wanted))
        if not candidates:
            # Leases whose time is over block no one, whether or not the sweeper has been there.
            if granted or not allocator.end_expired():
                return granted
            continue
        leases = allocator.take_free(candidates, wanted)
        if not leases:
            # The second time round not the best but any: those who wait should not all wait for the same row.
            leases = allocator.take_one(candidates[0] if attempt % 2 == 0 else random.choice(candidates), wanted)
        granted += leases
        if len(granted) == len(ids):
            return granted
    if granted:
        return granted
    raise Contended


class _Allocator:
    """The statements of one grant."""

    def __init__(self, wish: Wish, now: datetime, expires_at: datetime) -> None:
        self._wish = wish
        self._now = now
        self._expires_at = expires_at
        self._matching, matching_params = matching(wish)
        self._suitable = _SUITABLE + (_RESTED if wish.target else "")
        self._params = {
            **matching_params,
            "target": wish.target,
            "owner": wish.owner,
            "client": wish.client,
            "now": now,
            "expires_at": expires_at,
        }

    def candidates(self, leased: list[int], *, limit: int) -> list[int]:
        suitable = self._suitable + (" and load.proxy_id <> all(%(leased)s)" if leased else "")
        query = _CANDIDATES.format(suitable=suitable, matching=self._matching)
        return [proxy_id for (proxy_id,) in self._execute(query, leased=leased, limit=limit)]

    def end_expired(self) -> bool:
        """Whether any were due: even when another process ended them first, their slots are free now."""
        return endings.end_expired(self._now, proxies=self._matching, params=self._params).found > 0

    def take_free(self, candidates: list[int], ids: Sequence[UUID]) -> list[Lease]:
        query = _TAKE_FREE.format(suitable=self._suitable) + _LEASE
        return self._leases(query, ids, candidates=candidates, wanted=len(ids))

    def take_one(self, candidate: int, ids: Sequence[UUID]) -> list[Lease]:
        return self._leases(_TAKE_ONE.format(suitable=self._suitable) + _LEASE, ids[:1], candidate=candidate)

    def _leases(self, query: str, ids: Sequence[UUID], **params: Any) -> list[Lease]:
        return [
            Lease(
                id=lease_id,
                proxy_id=proxy_id,
                owner=self._wish.owner,
                client=self._wish.client,
                target=self._wish.target,
                created_at=self._now,
                expires_at=self._expires_at,
            )
            for lease_id, proxy_id in self._execute(query, ids=list(ids), **params)
        ]

    def _execute(self, query: str, **params: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(query, {**self._params, **params})
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

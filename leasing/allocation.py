"""Grants leases: the only code that raises the count of a proxy.

Any number of processes may grant at the same time. Each statement commits by itself, so that no lock outlives it:

1. Take the least loaded of the candidates that this process knows of, passing over rows that another holds at the
   moment. Nearly every grant ends here, with one statement whose cost doesn't depend on the size of the fleet.
2. Else read the best candidates without locking anything. Only this read, of the truth, may end in "none".
3. Take of these; when others held them all, wait for one, and take a slot if there still is one; else read again.

The condition is asked again by the very update that takes the slot, and leases are made only from the rows that it
changed: what was read before, be it long ago, is a hint.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from leasing import endings, index
from leasing.database import array, fetch
from leasing.index import Candidate
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
RESTED = """ and coalesce((
    select cooldown.until from leasing_cooldown cooldown
    where cooldown.target = %(target)s and cooldown.proxy_id = load.proxy_id
  ), '-infinity') <= %(now)s::timestamptz"""

# When there is no candidate, one row without a proxy says that leases whose time is over hold slots. Both are seen at
# one moment: asked one after the other, a slot could go from the second kind to the first unseen.
_CANDIDATES = """
with free as materialized (
  select load.proxy_id, load.version from leasing_proxyload load
  where {suitable}{matching}
  order by load.active, load.idle_since nulls first limit %(limit)s::bigint
)
select proxy_id, version from free
union all
select null, null where not exists (select from free)
  and exists (select from leasing_lease lease where lease.expires_at <= %(now)s::timestamptz{matching_lease})
"""

# The rows are found by their keys: a join with the candidates would be planned as a scan of the table, and `+ 0` keeps
# the index on versions out of it, since thousands of rows may have one version.
_TAKE_FREE = """
with pick as materialized (
  select load.proxy_id, load.version from leasing_proxyload load
  where load.proxy_id = any(%(candidates)s::bigint[]) and {suitable}
    and load.version = (%(versions)s::bigint[])[array_position(%(candidates)s::bigint[], load.proxy_id)]
  order by load.active, load.idle_since nulls first limit %(wanted)s::bigint
  for no key update of load skip locked
), taken as (
  update leasing_proxyload load set active = load.active + 1, idle_since = %(now)s::timestamptz
  from pick
  where load.proxy_id = pick.proxy_id and load.version + 0 = pick.version
    and load.leasable and load.active < load.max_leases
  returning load.proxy_id
)
"""

_TAKE_ONE = """
with taken as (
  update leasing_proxyload load set active = load.active + 1, idle_since = %(now)s::timestamptz
  where load.proxy_id = (%(candidates)s::bigint[])[1] and load.version + 0 = (%(versions)s::bigint[])[1] and {suitable}
  returning load.proxy_id
)
"""


@dataclass(frozen=True, slots=True)
class GrantedProxy:
    """What a client needs to know of a leased proxy, each column under its name.

    It is read with the slot: the version says that all of it is still true.
    """

    id: int
    namespace: str
    name: str
    attributes: dict[str, str]
    address: str
    address_port: int | None
    port: int
    egress_ip: str | None
    phase: str
    credentials_secret_name: str
    current_verdict: str

    @classmethod
    def from_row(cls, *columns: Any) -> Self:
        id_, namespace, name, attributes, *others = columns
        return cls(id_, namespace, name, json.loads(attributes), *others)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


_PROXY = """
proxy.id, proxy.namespace, proxy.name, proxy.attributes, proxy.address, proxy.address_port, proxy.port,
  host(proxy.egress_ip), proxy.phase, proxy.credentials_secret_name,
  case when proxy.probed_serial = proxy.instance_serial then proxy.verdict else 'unknown' end
"""


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease that has just begun."""

    id: UUID
    proxy: GrantedProxy
    client: str
    target: str
    created_at: datetime
    expires_at: datetime


# Rows are numbered only where there may be many: it takes the database a tenth of the time of a lease.
_LEASE = """, leased as (
  insert into leasing_lease (id, proxy_id, owner, client, target, created_at, expires_at)
  select (%(ids)s::uuid[])[{number}], proxy_id, %(owner)s, %(client)s, %(target)s,
    %(now)s::timestamptz, %(expires_at)s::timestamptz
  from {taken}
  returning id, proxy_id
)
select leased.id, {proxy}
from leased join fleet_proxy proxy on proxy.id = leased.proxy_id
"""
_LEASE_ONE = _LEASE.format(number="1", taken="taken", proxy=_PROXY)
_LEASE_EACH = _LEASE.format(
    number="number", taken="(select proxy_id, row_number() over () as number from taken) numbered", proxy=_PROXY
)


def matching(wish: Wish, proxy_id: str) -> tuple[str, dict[str, Any]]:
    """The condition that the column ``proxy_id`` is of a proxy that the wish names, and its parameters.

    It begins with "and", and is empty when the wish names all: then the wide rows of proxies are left alone.
    """
    if not wish.selector.requirements and not wish.exclude:
        return "", {}
    condition, params = wish.selector.sql("proxy.attributes")
    if wish.exclude:
        condition += " and proxy.namespace || '/' || proxy.name <> all(%(exclude)s)"
        params["exclude"] = list(wish.exclude)
    return f" and {proxy_id} in (select proxy.id from fleet_proxy proxy where {condition})", params  # noqa: S608  built here, from parts without a value in them


def grant(wish: Wish, ids: Sequence[UUID], *, now: datetime, expires_at: datetime) -> list[Granted]:
    """Lease up to ``len(ids)`` distinct proxies; none, when there was a moment at which no slot was free.

    The least loaded come first; of equals, the one that was idle for longest. ``ids`` become the ids of the leases,
    which carry what a client needs to know of their proxies. Raises Contended, and IntegrityError when a lease
    of one of these ids exists.
    """
    allocator = _Allocator(wish, now, expires_at)
    known = index.index.candidates(wish.selector, exclude=wish.exclude, wanted=len(ids))
    granted = allocator.take_free(known, ids) if known else []
    for attempt in range(ATTEMPTS):
        if len(granted) == len(ids):
            return granted
        wanted = ids[len(granted) :]
        candidates = allocator.candidates([lease.proxy.id for lease in granted], limit=CANDIDATES * len(wanted))
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
    if granted:
        return granted
    raise Contended


class _Allocator:
    """The statements of one grant."""

    def __init__(self, wish: Wish, now: datetime, expires_at: datetime) -> None:
        self._wish = wish
        self._suitable = _SUITABLE + (RESTED if wish.target else "")
        self._now = now
        self._expires_at = expires_at
        self._some_expired = False

    def candidates(self, leased: list[int], *, limit: int) -> list[Candidate]:
        condition, params = matching(self._wish, "load.proxy_id")
        if leased:
            condition += " and load.proxy_id <> all(%(leased)s)"
        matching_lease, _ = matching(self._wish, "lease.proxy_id")
        query = _CANDIDATES.format(suitable=self._suitable, matching=condition, matching_lease=matching_lease)
        params |= {"target": self._wish.target, "now": self._now, "leased": leased, "limit": limit}
        rows = fetch(query, params, prepare=not condition)
        self._some_expired = rows == [(None, None)]
        return [] if self._some_expired else [Candidate(*row) for row in rows]

    def end_expired(self) -> bool:
        """Whether any were due: even when another process ended them first, their slots are free now."""
        if self._some_expired:
            condition, params = matching(self._wish, "lease.proxy_id")
            endings.end_expired(self._now, among=condition, params=params)
        return self._some_expired

    def take_free(self, candidates: Sequence[Candidate], ids: Sequence[UUID]) -> list[Granted]:
        return self._take(_TAKE_FREE + (_LEASE_ONE if len(ids) == 1 else _LEASE_EACH), candidates, ids)

    def take_one(self, candidate: Candidate, ids: Sequence[UUID]) -> list[Granted]:
        return self._take(_TAKE_ONE + _LEASE_ONE, [candidate], ids[:1])

    def _take(self, statement: str, candidates: Sequence[Candidate], ids: Sequence[UUID]) -> list[Granted]:
        params = {
            "candidates": array(candidate.proxy_id for candidate in candidates),
            "versions": array(candidate.version for candidate in candidates),
            "wanted": len(ids),
            "ids": array(ids),
            "owner": self._wish.owner,
            "client": self._wish.client,
            "target": self._wish.target,
            "now": self._now.isoformat(),
            "expires_at": self._expires_at.isoformat(),
        }
        return [self._granted(*row) for row in fetch(statement.format(suitable=self._suitable), params)]

    def _granted(self, lease_id: UUID, *proxy: Any) -> Granted:
        return Granted(
            id=lease_id,
            proxy=GrantedProxy.from_row(*proxy),
            client=self._wish.client,
            target=self._wish.target,
            created_at=self._now,
            expires_at=self._expires_at,
        )

"""What leasing knows of leases, proxies and targets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import BooleanField, Case, Exists, F, OuterRef, Q, QuerySet, Value, When
from django.db.models.expressions import RawSQL

from leasing.allocation import Wish, matching
from leasing.database import fetch
from leasing.errors import LeaseEnded, LeaseNotFound, Shortage
from leasing.models import Cooldown, EndCause, EndedLease, Lease
from leasing.selectors import Selector
from proxyfleet.fleet.models import Proxy, ProxyEvent
from proxyfleet.fleet.phases import Phase, Verdict

SHOWN_LEASES = SHOWN_COOLDOWNS = 100
SHOWN_EVENTS = 20
TARGET_WINDOW = timedelta(hours=1)
LOOKED_AT = 100
"""Proxies that rest, the soonest rested first, among which the first to be free is looked for."""


def lease(lease_id: UUID, now: datetime) -> Lease:
    """The lease and its proxy, whatever became of the proxy's health. Raises LeaseNotFound or LeaseEnded."""
    found = Lease.objects.select_related("proxy").filter(pk=lease_id).first()
    if found is None:
        raise why_gone(lease_id)
    if found.expires_at <= now:
        raise LeaseEnded(EndCause.EXPIRED, found.expires_at)
    return found


def why_gone(lease_id: UUID) -> LeaseEnded | LeaseNotFound:
    """What to tell whoever asks for a lease that isn't there."""
    ended = EndedLease.objects.filter(pk=lease_id).first()
    return LeaseNotFound() if ended is None else LeaseEnded(ended.cause, ended.ended_at)


def proxies(
    *, healthy: bool | None, available: bool | None, target: str | None, selector: Selector, now: datetime, **equal: str
) -> QuerySet[Proxy]:
    """The proxies that pass every filter, with their load. ``equal`` maps columns to the values they must have."""
    found = Proxy.objects.select_related("load").defer("cloud_init_inline").filter(**equal)
    if healthy is not None:
        # A plain comparison of two columns is taken for one that few rows pass, and the whole table read and sorted.
        is_healthy = Case(
            When(probed_serial=F("instance_serial"), then=Q(verdict=Verdict.HEALTHY)),
            default=Value(value=False),
            output_field=BooleanField(),
        )
        found = found.filter(is_healthy if healthy else ~is_healthy)
    if available is not None:
        is_available = Q(load__leasable=True, load__active__lt=F("load__max_leases"))
        found = found.filter(is_available) if available else found.exclude(is_available)
    if target is not None:
        found = found.exclude(Exists(Cooldown.objects.filter(proxy=OuterRef("pk"), target=target, until__gt=now)))
    if selector.requirements:
        found = found.filter(_condition(selector))
    return found


def _condition(selector: Selector) -> RawSQL:
    """The selector as an expression for the ORM, whose parameters have no names."""
    condition, params = selector.sql('"fleet_proxy"."attributes"')
    names = re.findall(r"%\((\w+)\)s", condition)
    unnamed = re.sub(r"%\(\w+\)s", "%s", condition)
    return RawSQL(unnamed, [params[name] for name in names], BooleanField())  # noqa: S611  values are parameters


@dataclass(frozen=True, slots=True)
class ProxyDetail:
    """A proxy and what happens around it."""

    proxy: Proxy
    leases: Sequence[Lease]
    cooldowns: Sequence[Cooldown]
    events: Sequence[ProxyEvent]


def proxy(namespace: str, name: str) -> Proxy | None:
    """The proxy of this name: of two, the one that is not on its way out."""
    named = Proxy.objects.select_related("load").filter(namespace=namespace, name=name)
    return named.order_by(F("deletion_requested_at").desc(nulls_first=True)).first()


def detail(of: Proxy, now: datetime) -> ProxyDetail:
    return ProxyDetail(
        proxy=of,
        leases=list(of.leases.filter(expires_at__gt=now)[:SHOWN_LEASES]),
        cooldowns=list(of.cooldowns.filter(until__gt=now).order_by("-until")[:SHOWN_COOLDOWNS]),
        events=list(ProxyEvent.objects.filter(proxy_uid=of.uid)[:SHOWN_EVENTS]),
    )


_TARGETS = """
with recent as (
  select target, count(*) as reports, count(*) filter (where result = 'ok') as succeeded
  from leasing_report where at > %(since)s and target > %(after)s group by target
), cooling as (
  select target, count(*) as proxies from leasing_cooldown
  where until > %(now)s and target > %(after)s group by target
)
select target, coalesce(proxies, 0), coalesce(reports, 0), succeeded::float / reports
from recent full join cooling using (target) order by target limit %(limit)s
"""


@dataclass(frozen=True, slots=True)
class TargetSummary:
    target: str
    cooling: int
    reports: int
    success_rate: float | None


def targets(now: datetime, *, after: str, limit: int) -> list[TargetSummary]:
    """Targets that have cooldowns now or reports of the last hour, in the order of their names, from ``after`` on."""
    with connection.cursor() as cursor:
        cursor.execute(_TARGETS, {"since": now - TARGET_WINDOW, "now": now, "after": after, "limit": limit})
        return [TargetSummary(*row) for row in cursor.fetchall()]


# Only what can't be leased is looked up among the wide rows of proxies, to tell why.
# Those that rest are joined as a set, instead of asking of each proxy whether it does.
_SHORTAGE = """
with resting as (
  select proxy_id from leasing_cooldown where target = %(target)s::text and until > %(now)s
), unleasable as (
  select count(*) as total, count(*) filter (
    where proxy.phase = any(%(draining)s) or proxy.cordoned or proxy.deletion_requested_at is not null
  ) as draining
  from leasing_proxyload load join fleet_proxy proxy on proxy.id = load.proxy_id
  where not load.leasable{matching}
), leasable as (
  select count(*) as total, count(resting.proxy_id) as cooling,
    count(*) filter (where load.active >= load.max_leases and resting.proxy_id is null) as "full"
  from leasing_proxyload load left join resting on resting.proxy_id = load.proxy_id
  where load.leasable{matching}
)
select leasable.total + unleasable.total, unleasable.total - draining, "full", cooling, draining
from leasable, unleasable
"""
_RESTING = """exists (
  select from leasing_cooldown cooldown
  where cooldown.target = %(target)s and cooldown.proxy_id = load.proxy_id and cooldown.until > %(now)s
)"""

# The lease that frees a slot when it ends: the first of its proxy; but where the limit was lowered below the leases
# that are out, as many of them must end before.
_NEXT_SLOT = """
select lease.expires_at from leasing_lease lease join leasing_proxyload load on load.proxy_id = lease.proxy_id
where load.leasable and not {resting}{matching}
  and (load.active = load.max_leases or load.active - load.max_leases <= (
    select count(*) from leasing_lease other
    where other.proxy_id = lease.proxy_id and (other.expires_at, other.id) < (lease.expires_at, lease.id)
  ))
order by lease.expires_at limit 1
"""
_NEXT_RESTED = f"""
select min(free_at) from (
  select greatest(cooldown.until, (
    select lease.expires_at from leasing_lease lease
    where lease.proxy_id = load.proxy_id and load.active >= load.max_leases
    order by lease.expires_at offset greatest(load.active - load.max_leases, 0) limit 1
  )) as free_at
  from leasing_cooldown cooldown join leasing_proxyload load on load.proxy_id = cooldown.proxy_id
  where cooldown.target = %(target)s and cooldown.until > %(now)s and load.leasable{{matching}}
  order by cooldown.until limit {LOOKED_AT}
) rested
"""  # noqa: S608  a number of ours


def shortage(wish: Wish, now: datetime) -> Shortage:
    """Why nothing that matches can be leased."""
    condition, params = matching(wish, "load.proxy_id")
    resting = _RESTING if wish.target else "false"
    params |= {"draining": [Phase.REPLACING.value, Phase.TERMINATING.value], "target": wish.target, "now": now}

    def ask(query: str) -> list[tuple[Any, ...]]:
        return fetch(query.format(matching=condition, resting=resting), params, prepare=not condition)

    ((total, unhealthy, full, cooling, draining),) = ask(_SHORTAGE)
    times = [*(ask(_NEXT_SLOT) if full else ()), *(ask(_NEXT_RESTED) if cooling else ())]
    free_at = min((at for (at,) in times if at is not None), default=None)
    return Shortage(total, unhealthy, full, cooling, draining, free_at)

"""What leasing knows of leases, proxies and targets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import BooleanField, Exists, F, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL

from leasing.allocation import Wish, matching
from leasing.errors import LeaseEnded, LeaseNotFound, Shortage
from leasing.models import Cooldown, EndCause, EndedLease, Lease
from leasing.selectors import Selector
from proxyfleet.fleet.models import Proxy, ProxyEvent
from proxyfleet.fleet.phases import Phase, Verdict

SHOWN_LEASES = SHOWN_COOLDOWNS = 100
SHOWN_EVENTS = 20
TARGET_WINDOW = timedelta(hours=1)


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
        is_healthy = Q(verdict=Verdict.HEALTHY, probed_serial=F("instance_serial"))
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


_SHORTAGE = """
with fleet as (
  select coalesce(load.leasable, false) as leasable,
    load.active >= load.max_leases as is_full,
    proxy.phase = any(%(draining)s) or proxy.cordoned or proxy.deletion_requested_at is not null as is_draining,
    (select until from leasing_cooldown
      where target = %(target)s and proxy_id = proxy.id and until > %(now)s) as rested_at,
    (select expires_at from leasing_lease where proxy_id = proxy.id and load.active >= load.max_leases
      order by expires_at offset greatest(load.active - load.max_leases, 0) limit 1) as slot_at
  from fleet_proxy proxy left join leasing_proxyload load on load.proxy_id = proxy.id
  where proxy.id in ({matching})
)
select count(*),
  count(*) filter (where not leasable and not is_draining),
  count(*) filter (where leasable and rested_at is null and is_full),
  count(*) filter (where leasable and rested_at is not null),
  count(*) filter (where not leasable and is_draining),
  min(greatest(rested_at, slot_at)) filter (where leasable)
from fleet
"""


def shortage(wish: Wish, now: datetime) -> Shortage:
    """Why nothing that matches can be leased."""
    matching_proxies, params = matching(wish)
    params |= {"draining": [Phase.REPLACING, Phase.TERMINATING], "target": wish.target, "now": now}
    with connection.cursor() as cursor:
        cursor.execute(_SHORTAGE.format(matching=matching_proxies), params)
        row = cursor.fetchone()
    return Shortage(*row)

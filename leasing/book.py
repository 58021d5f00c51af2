"""The fleet's view of its leases."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from django.db import connection
from django.db.models import Count

from leasing import endings
from leasing.models import REFUSALS, Cooldown, EndedLease, Lease, Report, Result
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.ports import LeaseSummary, LeasingNews, RestingFor
from proxyfleet.fleet.templatetags.ages import age

_PUBLISH = """
insert into leasing_proxyload as load (proxy_id, leasable, max_leases, active, ceiling, generation, version)
values (
  %(proxy)s, %(leasable)s, %(max_leases)s, 0, %(max_leases)s, %(generation)s, pg_current_xact_id()::text::bigint
)
on conflict (proxy_id) do update
set leasable = excluded.leasable, max_leases = excluded.max_leases,
  ceiling = greatest(excluded.max_leases, load.active), generation = excluded.generation, version = excluded.version
where (load.leasable, load.max_leases, load.generation)
  is distinct from (excluded.leasable, excluded.max_leases, excluded.generation)
"""


class DatabaseLeaseBook:
    """`proxyfleet.fleet.ports.LeaseBook` on the leasing tables."""

    def publish(self, proxy_id: int, *, leasable: bool, max_leases: int, generation: int) -> None:
        published = {"leasable": leasable, "max_leases": max_leases, "generation": generation}
        with connection.cursor() as cursor:
            cursor.execute(_PUBLISH, published | {"proxy": proxy_id})

    def active(self, proxy_id: int, now: datetime) -> int:
        return Lease.objects.filter(proxy_id=proxy_id, expires_at__gt=now).count()

    def active_each(self, proxy_ids: Collection[int], now: datetime) -> Mapping[int, int]:
        out = Lease.objects.filter(proxy_id__in=proxy_ids, expires_at__gt=now).order_by()
        return dict(out.values_list("proxy_id").annotate(Count("id")))

    def targets_cooling_each(self, proxy_ids: Collection[int], now: datetime) -> Mapping[int, int]:
        resting = Cooldown.objects.filter(proxy_id__in=proxy_ids, until__gt=now).order_by()
        return dict(resting.values_list("proxy_id").annotate(Count("id")))

    def outstanding(self, proxy_id: int, now: datetime, *, limit: int) -> Sequence[LeaseSummary]:
        leases = Lease.objects.filter(proxy_id=proxy_id, expires_at__gt=now)[:limit]
        return [
            LeaseSummary(lease.id, lease.owner, lease.client, lease.target, lease.created_at, lease.expires_at)
            for lease in leases
        ]

    def cooldowns(self, proxy_id: int, now: datetime, *, limit: int) -> Sequence[RestingFor]:
        resting = Cooldown.objects.filter(proxy_id=proxy_id, until__gt=now).order_by("-until", "-id")[:limit]
        return [RestingFor(cooldown.target, cooldown.until) for cooldown in resting]

    def lease_news(self, proxy: Proxy, *, since: datetime, before: datetime, limit: int) -> Sequence[LeasingNews]:
        out = Lease.objects.filter(proxy_id=proxy.pk, created_at__gte=since, created_at__lt=before)
        ended = EndedLease.objects.filter(proxy_uid=proxy.uid, ended_at__gte=since, ended_at__lt=before)
        news = [
            LeasingNews(lease.created_at, "Leased", _lessee(lease)) for lease in out.order_by("-created_at")[:limit]
        ]
        news += [
            LeasingNews(
                lease.ended_at,
                "Lease ended",
                f"{_lessee(lease)}, {lease.get_cause_display()} after {age(lease.created_at, lease.ended_at)}",
            )
            for lease in ended.order_by("-ended_at")[:limit]
        ]
        return sorted(news, key=lambda one: one.at, reverse=True)[:limit]

    def report_news(self, proxy: Proxy, *, since: datetime, before: datetime, limit: int) -> Sequence[LeasingNews]:
        reports = Report.objects.filter(proxy_uid=proxy.uid, at__gte=since, at__lt=before).order_by("-at")[:limit]
        return [
            LeasingNews(
                report.at,
                f"Reported {report.get_result_display().lower()}",
                report.target + (", which it rests for" if report.result in REFUSALS else ""),
                is_bad=report.result != Result.OK,
            )
            for report in reports
        ]

    def end_all(self, proxy_id: int, *, cause: str, now: datetime) -> int:
        return endings.end_of_proxy(proxy_id, cause=cause, now=now)


def _lessee(lease: Lease | EndedLease) -> str:
    who = lease.client or lease.owner or "anonymous"
    return f"{who} for {lease.target}" if lease.target else who

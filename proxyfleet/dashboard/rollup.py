"""One row for each minute of the fleet, derived from what the tables tell: as often as one likes, or hours later.

What is counted of a minute can be counted at any time from the records, so minutes in which no worker ran are made up
for. What can only be seen at the moment, how many proxies are Ready, stays unknown of them, and charts show a gap.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Max

from health import latency
from leasing import statistics
from leasing.statistics import Minute
from proxyfleet.conf import settings
from proxyfleet.dashboard.models import FleetMinute
from proxyfleet.fleet import dashboard

MINUTE = timedelta(minutes=1)
CATCH_UP = timedelta(days=1)
"""What a chart shows: minutes from before are not made up for."""

SETTLING = 3 * MINUTE
"""Records may be committed a little after the time that they carry, so the newest minutes are counted again."""

_COUNTED = ["leases", "reports_ok", "reports_failed", "phase_changes", "probe_counts"]


def roll_up(now: datetime) -> int:
    """Bring the rows of all minutes before this one up to date; returns how many were written: 0 when all were."""
    until = now.replace(second=0, microsecond=0)
    newest = FleetMinute.objects.filter(minute__lt=until).aggregate(at=Max("minute"))["at"]
    if newest == until - MINUTE and FleetMinute.objects.filter(minute=newest, proxies__isnull=False).exists():
        return 0
    earliest = until - CATCH_UP
    since = earliest if newest is None else max(earliest, newest + MINUTE - SETTLING)
    _write(since, until)
    census = dashboard.census(now)
    FleetMinute.objects.filter(minute=until - MINUTE).update(proxies=census.wanted, ready=census.ready)
    _prune(now)
    return (until - since) // MINUTE


def _write(since: datetime, until: datetime) -> None:
    leasing = statistics.by_minute(since, until)
    changes = dashboard.phase_changes_by_minute(since, until)
    probes = latency.by_minute(since, until)
    rows = []
    for number in range((until - since) // MINUTE):
        minute = since + number * MINUTE
        counted = leasing.get(minute, Minute())
        rows.append(
            FleetMinute(
                minute=minute,
                leases=counted.leases,
                reports_ok=counted.reports_ok,
                reports_failed=counted.reports_failed,
                phase_changes=changes.get(minute, 0),
                probe_counts=list(probes.get(minute, ())),
            )
        )
    # A row that exists keeps what was seen at its end.
    FleetMinute.objects.bulk_create(rows, update_conflicts=True, unique_fields=["minute"], update_fields=_COUNTED)


def _prune(now: datetime) -> None:
    FleetMinute.objects.filter(minute__lt=now - timedelta(days=settings().event_retention_days)).delete()
    latency.prune(now)

"""Minutes of the fleet: once, late, twice, and after nobody was there."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from health import latency
from health.models import ProbeMinute
from leasing.ids import uuid7
from leasing.models import EndedLease, Lease, Report
from proxyfleet.conf import settings
from proxyfleet.dashboard.models import FleetMinute
from proxyfleet.dashboard.rollup import CATCH_UP, MINUTE, roll_up
from proxyfleet.fleet.models import EventKind, Proxy, ProxyEvent
from proxyfleet.fleet.phases import Phase

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 1, 12, 0, 20, tzinfo=UTC)
"""Twenty seconds into a minute."""
LAST = datetime(2026, 5, 1, 11, 59, tzinfo=UTC)
"""The one that is over."""


def proxy(name: str, phase: Phase = Phase.READY) -> Proxy:
    return Proxy.objects.create(name=name, phase=phase)


def lease(of: Proxy, at: datetime) -> None:
    Lease.objects.create(id=uuid7(at), proxy=of, created_at=at, expires_at=at + timedelta(hours=1))


def ended(at: datetime) -> None:
    EndedLease.objects.create(
        id=uuid7(at), proxy_uid=uuid4(), namespace="default", name="p", created_at=at, ended_at=at, cause="released"
    )


def report(at: datetime, result: str) -> None:
    Report.objects.create(lease_id=uuid4(), proxy_uid=uuid4(), namespace="default", name="p", result=result, at=at)


def change(at: datetime) -> None:
    ProxyEvent.objects.create(
        proxy_uid=uuid4(), namespace="default", name="p", at=at, kind=EventKind.PHASE_CHANGED, new_phase="Ready"
    )


def at(minute: datetime) -> FleetMinute:
    return FleetMinute.objects.get(minute=minute)


def test_a_minute_is_counted_from_its_records() -> None:
    within = LAST + timedelta(seconds=59.9)
    for moment in (LAST, within):
        lease(proxy(f"p-{moment:%f}"), moment)
        ended(moment)
        change(moment)
        report(moment, "ok")
    report(within, "blocked")
    proxy("failed", Phase.FAILED)
    proxy("leaving", Phase.TERMINATING)
    latency.record("a", [0.1, 0.1, 3], within)
    latency.record("b", [0.1], within)
    # Of other minutes.
    for moment in (LAST - timedelta(seconds=0.1), LAST + MINUTE):
        ended(moment)
        report(moment, "ok")
        change(moment)
        latency.record("a", [9.0], moment)
    roll_up(NOW)
    row = at(LAST)
    assert (row.leases, row.reports_ok, row.reports_failed, row.phase_changes) == (4, 2, 1, 2)
    assert (row.proxies, row.ready) == (3, 2), "those on their way out are not wanted any more"
    assert sum(row.probe_counts) == 4
    median = latency.quantile(row.probe_counts, 0.5)
    assert median is not None
    assert 0.08 < median < 0.125
    assert FleetMinute.objects.filter(minute=LAST + MINUTE).count() == 0, "it is not over"


def test_a_second_run_in_the_minute_writes_nothing() -> None:
    roll_up(NOW)
    before = list(FleetMinute.objects.values())
    assert roll_up(NOW + timedelta(seconds=30)) == 0
    assert list(FleetMinute.objects.values()) == before


def test_what_is_committed_late_is_counted_with_the_next_minute() -> None:
    roll_up(NOW)
    ended(LAST)
    seen = at(LAST)
    roll_up(NOW + MINUTE)
    assert at(LAST).leases == 1
    assert (at(LAST).proxies, at(LAST).ready) == (seen.proxies, seen.ready), "what was seen then stays"


def test_minutes_without_a_worker_are_made_up_for() -> None:
    proxy("p")
    roll_up(NOW)
    ended(LAST + 30 * MINUTE)
    roll_up(NOW + timedelta(hours=2))
    assert FleetMinute.objects.filter(minute__gte=LAST).count() == 121
    missed = at(LAST + 30 * MINUTE)
    assert missed.leases == 1
    assert missed.proxies is None, "nobody knows any more how many there were"
    assert at(LAST + timedelta(hours=2)).proxies == 1


def test_after_a_long_time_only_a_day_is_made_up_for() -> None:
    roll_up(NOW - timedelta(days=20))
    rows = FleetMinute.objects.count()
    assert roll_up(NOW) == CATCH_UP // MINUTE
    assert FleetMinute.objects.count() == rows + CATCH_UP // MINUTE


def test_a_lease_that_was_named_before_it_was_granted_is_counted() -> None:
    Lease.objects.create(
        id=uuid7(LAST - 5 * MINUTE), proxy=proxy("p"), created_at=LAST, expires_at=LAST + timedelta(hours=1)
    )
    roll_up(NOW - 2 * MINUTE)
    roll_up(NOW)
    assert at(LAST).leases == 1


def test_what_is_old_goes() -> None:
    days = settings().event_retention_days
    roll_up(NOW - timedelta(days=days, minutes=1))
    latency.record("a", [1.0], NOW - latency.KEPT - MINUTE)
    latency.record("a", [1.0], NOW - latency.KEPT + MINUTE)
    roll_up(NOW)
    assert FleetMinute.objects.order_by("minute")[0].minute >= NOW - timedelta(days=days)
    assert ProbeMinute.objects.count() == 1


def test_a_clock_that_was_set_back_stops_nothing() -> None:
    roll_up(NOW)
    ended(LAST + MINUTE)
    roll_up(NOW - timedelta(hours=1))
    roll_up(NOW + MINUTE)
    assert at(LAST + MINUTE).leases == 1


_REPORTS = """
insert into leasing_report (lease_id, proxy_uid, namespace, name, target, result, at)
select gen_random_uuid(), gen_random_uuid(), 'default', 'a', 'example.com', 'ok', %s - number * interval '1 hour'
from generate_series(1, 5000) number
"""


_EVENTS = """
insert into fleet_proxyevent (proxy_uid, namespace, name, at, kind, reason, message, old_phase, new_phase, actor)
select gen_random_uuid(), 'default', 'a', %s - number * interval '1 hour', 'PhaseChanged', '', '', '', 'Ready', ''
from generate_series(1, 5000) number
"""


def test_records_are_found_by_their_time() -> None:
    """Also where there are so many that no planner would read them all."""
    with CaptureQueriesContext(connection) as captured:
        roll_up(NOW)
    [leasing] = [query["sql"] for query in captured if "leasing_endedlease" in query["sql"]]
    [events] = [query["sql"] for query in captured if "fleet_proxyevent" in query["sql"]]
    with connection.cursor() as cursor:
        # With next to no rows, whichever index comes first is as good as another.
        cursor.execute(_REPORTS, [NOW])
        cursor.execute(_EVENTS, [NOW])
        cursor.execute("analyze leasing_report, fleet_proxyevent")
        cursor.execute("set local enable_seqscan = off")
        for sql, indexes in (
            (leasing, ("leasing_lease_pkey", "leasing_endedlease_pkey", "report_recent")),
            (events, ("event_age",)),
        ):
            cursor.execute(f"explain {sql}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            for index in indexes:
                assert re.search(rf"{index}.*\n\s*(Recheck|Index) Cond", plan), plan

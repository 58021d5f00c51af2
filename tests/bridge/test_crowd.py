"""Many proxies at once, and then the quiet that a fleet at rest is to be."""

from __future__ import annotations

import time

import pytest
from django.db import connection

from proxyfleet.fleet.models import Proxy
from tests.bridge.bridges import running, user
from tests.bridge.operator import Operator

HEARTBEATS = "leases"
"""The bridge's own sign of life, every two seconds; whatever else it writes tells of something that happened."""

API_SERVER = "system:apiserver"
"""Keeps a Lease of its own."""


def rows_updated() -> int:
    """Row versions of proxies that were ever made by an UPDATE."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
        cursor.execute("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'fleet_proxy'")
        [count] = cursor.fetchone()
    return int(count)


@pytest.mark.timeout(1200)
@pytest.mark.django_db(transaction=True)
def test_many_are_shown_and_then_nothing_is_written(operator: Operator, request: pytest.FixtureRequest) -> None:
    size, quiet = request.config.getoption("--proxies"), request.config.getoption("--quiet-seconds")
    with running(operator.cluster, operator.namespace):
        operator.apply(*(f"p{number}" for number in range(size)))
        operator.until(
            lambda: Proxy.objects.filter(phase="Ready").count() == size and operator.published(), seconds=900
        )
        shown = {name: obj["status"] for name, obj in operator.proxies().items()}
        assert {name: status["phase"] for name, status in shown.items()} == {
            proxy.name: proxy.phase for proxy in Proxy.objects.all()
        }
        assert {status["ip"] for status in shown.values()} == {proxy.address for proxy in Proxy.objects.all()}

        time.sleep(2)  # what was written last is in the log and the counters by now
        since, before = operator.cluster.audit.mark(), rows_updated()
        time.sleep(quiet)  # the test is that nothing happens
        writes = [write for write in operator.cluster.audit.writes(since) if write.user != API_SERVER]
        heartbeats = [write for write in writes if write.resource == HEARTBEATS]
        assert [write for write in writes if write.resource != HEARTBEATS] == []
        assert {write.user for write in heartbeats} == {user("proxyfleet-sync")}
        assert rows_updated() == before

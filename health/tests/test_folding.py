from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from health.folding import fold
from health.results import Measured, Outcome, ProbeResult, Stage
from health.tests.fleet import add_proxies
from proxyfleet.fleet.egress import leaking_address, sharing_egress
from proxyfleet.fleet.models import Proxy, ProxyEvent

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HEALTHY = {"verdict": "healthy", "probed_serial": 1, "probe_successes": 1, "last_outcome": "Ok"}
UNHEALTHY = {"verdict": "unhealthy", "probed_serial": 1, "probe_failures": 3, "last_outcome": "Timeout"}


def result(proxy: Proxy, outcome: Outcome = Outcome.OK, **fields: Any) -> ProbeResult[Measured]:
    measured = Measured(proxy.pk, proxy.instance_serial)
    message = "" if outcome is Outcome.OK else f"it was {outcome}"
    return ProbeResult(measured, outcome, Stage.RESPONSE, {}, message, **fields)


def versions() -> list[tuple[Any, ...]]:
    """What PostgreSQL changes of a row with every write, and with every lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, xmin, xmax, ctid::text FROM fleet_proxy ORDER BY id")
        return list(cursor.fetchall())


def test_a_fleet_that_stays_as_it_is_is_read_once_and_never_written() -> None:
    healthy, unhealthy = add_proxies(20, **HEALTHY, egress_ip="203.0.113.9"), add_proxies(20, **UNHEALTHY)
    before = versions()
    with CaptureQueriesContext(connection) as queries:
        fold(
            [
                *[result(proxy, egress_ip="203.0.113.9") for proxy in healthy],
                *[result(proxy, Outcome.CONNECT_REFUSED) for proxy in unhealthy],
            ],
            NOW,
        )
    assert [query["sql"].split()[0] for query in queries] == ["SELECT", "SELECT"], "the proxies, and what is suspected"
    assert versions() == before


def test_only_rows_that_change_are_written() -> None:
    stays, changes = add_proxies(2, **HEALTHY)
    before = versions()
    fold([result(stays), result(changes, Outcome.TIMEOUT)], NOW)
    after = versions()
    assert after[0] == before[0]
    assert after[1] != before[1]
    changes.refresh_from_db()
    assert (changes.verdict, changes.probe_failures, changes.last_outcome) == ("healthy", 1, "Ok")
    assert not ProxyEvent.objects.exists()
    assert changes.next_reconcile_at is None


def test_number_of_statements_does_not_grow_with_the_fleet() -> None:
    counts = []
    for size in (2, 200):
        proxies = add_proxies(size)
        with CaptureQueriesContext(connection) as queries:
            fold([result(proxy) for proxy in proxies], NOW)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_a_new_verdict_is_told(django_capture_on_commit_callbacks: Any) -> None:
    [proxy] = add_proxies(1, **UNHEALTHY)
    with django_capture_on_commit_callbacks() as hints:
        fold([result(proxy, egress_ip="203.0.113.9")], NOW)
    proxy.refresh_from_db()
    assert (proxy.verdict, proxy.last_outcome, proxy.health_message) == ("healthy", "Ok", "")
    assert (proxy.health_changed_at, proxy.egress_ip, proxy.next_reconcile_at) == (NOW, "203.0.113.9", NOW)
    event = ProxyEvent.objects.get()
    assert (event.kind, event.reason, event.message, event.at) == ("HealthChanged", "Ok", "unhealthy → healthy", NOW)
    assert len(hints) == 1


def test_only_what_people_see_is_a_new_revision() -> None:
    [proxy] = add_proxies(1, **HEALTHY)

    def revision_after(outcome: Outcome = Outcome.OK, **fields: Any) -> int:
        fold([result(proxy, outcome, **fields)], NOW)
        proxy.refresh_from_db()
        return proxy.revision

    assert revision_after(egress_ip="203.0.113.9") == 1, "targets see another address"
    assert revision_after(Outcome.TIMEOUT) == 1, "one failure is no verdict"
    assert revision_after(Outcome.TIMEOUT) == 1
    assert revision_after(Outcome.TIMEOUT) == 2, "it is unhealthy"


def test_failures_before_the_first_verdict_are_explained() -> None:
    [proxy] = add_proxies()
    for failures in (1, 2, 3):
        fold([result(proxy, Outcome.TUNNEL_REFUSED)], NOW)
        proxy.refresh_from_db()
        assert (proxy.last_outcome, proxy.health_message) == ("TunnelRefused", "it was TunnelRefused")
        assert (proxy.verdict, proxy.probe_failures) == ("unhealthy" if failures == 3 else "unknown", failures)
    assert [event.message for event in ProxyEvent.objects.all()] == ["unknown → unhealthy: it was TunnelRefused"]


def test_a_success_that_is_not_enough_keeps_the_explanation() -> None:
    [proxy] = add_proxies(1, **UNHEALTHY, success_threshold=2)
    fold([result(proxy)], NOW)
    proxy.refresh_from_db()
    assert (proxy.verdict, proxy.probe_successes, proxy.last_outcome) == ("unhealthy", 1, "Timeout")


def test_a_result_on_an_earlier_instance_is_dropped() -> None:
    [proxy] = add_proxies(1, **HEALTHY)
    late = result(proxy, Outcome.TIMEOUT)
    Proxy.objects.update(instance_serial=2)
    before = versions()
    fold([late], NOW)
    assert versions() == before


def test_a_new_instance_starts_from_nothing() -> None:
    [proxy] = add_proxies(1, **HEALTHY | {"instance_serial": 2, "egress_ip": "203.0.113.9"})
    fold([result(proxy, Outcome.TIMEOUT)], NOW + timedelta(hours=1))
    proxy.refresh_from_db()
    assert (proxy.verdict, proxy.probed_serial, proxy.probe_successes, proxy.probe_failures) == ("unknown", 2, 0, 1)
    assert proxy.egress_ip is None


def test_a_proxy_that_is_gone_is_nobodys_result() -> None:
    [proxy] = add_proxies()
    gone = result(proxy)
    Proxy.objects.all().delete()
    fold([gone], NOW)
    assert not ProxyEvent.objects.exists()


def test_proxies_that_share_an_address_or_leak_ours_are_told_of_once() -> None:
    one, other, third = add_proxies(3, **HEALTHY)
    fold([result(one, egress_ip="203.0.113.9", leaking_headers=())], NOW)
    assert not ProxyEvent.objects.exists()
    for _ in range(2):
        fold([result(other, egress_ip="203.0.113.9"), result(third, leaking_headers=("Via", "X-Real-IP"))], NOW)
    found = list(ProxyEvent.objects.order_by("kind").values_list("kind", "proxy_id", "message"))
    assert found == [
        ("AddressLeaked", third.pk, "The proxy tells targets whom it works for, in: Via, X-Real-IP"),
        ("EgressShared", other.pk, f"Targets see it as 203.0.113.9, like {one}."),
    ]
    assert set(sharing_egress()) == {one, other}
    assert set(leaking_address()) == {third}
    fold([result(third)], NOW)
    assert set(leaking_address()) == {third}, "an answer that does not tell headers says nothing of them"
    fold([result(third, leaking_headers=())], NOW)
    assert not leaking_address().exists()
    # A new instance may be elsewhere.
    Proxy.objects.filter(pk=one.pk).update(instance_serial=2)
    assert not sharing_egress().exists()

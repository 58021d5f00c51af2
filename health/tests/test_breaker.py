"""The breaker of a probe target in the database: what is held, what is taken back, what is told, what is written."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from health.folding import fold
from health.results import Measured, Outcome, ProbeResult, Stage
from health.targets import forget_unused
from health.tests.fleet import add_proxies
from proxyfleet.fleet.models import ProbeTarget, Proxy, ProxyEvent

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
URL = "https://target.example/"
HOST = "target.example:443"
HEALTHY = {
    "verdict": "healthy",
    "probed_serial": 1,
    "probe_successes": 1,
    "last_outcome": "Ok",
    "health_url": URL,
    "phase": "Ready",
}
WAYS: dict[Outcome, tuple[Stage, int | None]] = {
    Outcome.OK: (Stage.RESPONSE, 204),
    Outcome.CONNECT_REFUSED: (Stage.CONNECT, None),
    Outcome.TUNNEL_REFUSED: (Stage.TUNNEL, 503),
    Outcome.TLS_FAILED: (Stage.TLS, None),
    Outcome.BAD_STATUS: (Stage.RESPONSE, 503),
}


def result(proxy: Proxy, outcome: Outcome = Outcome.OK) -> ProbeResult[Measured]:
    stage, status = WAYS[outcome]
    message = "" if outcome is Outcome.OK else f"it was {outcome}"
    return ProbeResult(Measured.of(proxy), outcome, stage, {Stage.TLS: 0.1}, message, status, url=proxy.health_url)


def tell(proxies: Iterable[Proxy], outcome: Outcome = Outcome.OK, *, at: datetime = NOW) -> None:
    """One fold for each, as in a small fleet."""
    for proxy in proxies:
        fold([result(proxy, outcome)], at)


def verdicts() -> list[str]:
    return list(Proxy.objects.order_by("pk").values_list("verdict", flat=True))


def is_open() -> bool:
    return ProbeTarget.objects.filter(host=HOST).exclude(suspect_since=None).exists()


def events(kind: str) -> list[ProxyEvent]:
    return list(ProxyEvent.objects.filter(kind=kind).order_by("pk"))


@pytest.mark.parametrize("outcome", [Outcome.TUNNEL_REFUSED, Outcome.TLS_FAILED, Outcome.BAD_STATUS])
@pytest.mark.parametrize("threshold", [1, 3])
@pytest.mark.parametrize("apart", [True, False])
def test_a_target_that_goes_down_costs_no_verdict(outcome: Outcome, threshold: int, apart: bool) -> None:
    proxies = add_proxies(20, **HEALTHY, failure_threshold=threshold)
    for _ in range(5):
        if apart:
            tell(proxies, outcome)
        else:
            fold([result(proxy, outcome) for proxy in proxies], NOW)
    assert verdicts() == ["healthy"] * 20
    assert is_open()
    assert set(Proxy.objects.values_list("probe_failures", "probe_successes")) == {(0, 1)}, "nothing was counted"
    if apart:
        tell(proxies[:3])
    else:
        fold([result(proxy) for proxy in proxies], NOW)
    assert not ProbeTarget.objects.exists()
    assert verdicts() == ["healthy"] * 20


def test_those_that_fell_before_it_was_known_are_restored_and_told_of() -> None:
    proxies = add_proxies(10, **HEALTHY, failure_threshold=1)
    tell(proxies[:2], Outcome.TLS_FAILED)
    assert verdicts()[:3] == ["unhealthy", "unhealthy", "healthy"], "of two nobody can tell"
    Proxy.objects.update(next_reconcile_at=None)
    tell(proxies[2:3], Outcome.TLS_FAILED, at=NOW + timedelta(seconds=9))
    assert verdicts() == ["healthy"] * 10
    assert Proxy.objects.exclude(next_reconcile_at=None).count() == 2, "the reconciler is woken, too"
    turned = [event.message for event in events("HealthChanged")]
    assert turned[2:] == ["unhealthy → healthy: the probe target is suspect; its failures do not count"] * 2
    told = events("ProbeTargetSuspect")
    assert [event.proxy_id for event in told] == [proxy.pk for proxy in proxies[:3]]
    assert told[0].message == (
        "target.example:443 is suspect, not the proxies: 3 of the last 3 failed at the tls stage. "
        "Verdicts are held until it answers. it was TLSFailed"
    )
    row = ProbeTarget.objects.get()
    assert (row.stage, row.failed, row.heard, row.suspect_since) == ("tls", 3, 3, NOW + timedelta(seconds=9))
    tell(proxies[5:8])
    assert [event.proxy_id for event in events("ProbeTargetCleared")] == [proxy.pk for proxy in proxies[:3]]
    assert set(Proxy.objects.filter(pk__in=row.witnesses).values_list("revision", flat=True)) != {0}


def test_while_it_is_open_what_is_the_proxys_own_still_counts() -> None:
    proxies = add_proxies(10, **HEALTHY, failure_threshold=1)
    tell(proxies[:3], Outcome.TLS_FAILED)
    assert is_open()
    tell(proxies[8:9], Outcome.CONNECT_REFUSED)
    assert verdicts() == [*["healthy"] * 8, "unhealthy", "healthy"]
    tell(proxies[8:9], Outcome.TLS_FAILED)
    assert verdicts()[8] == "unhealthy", "that it can be reached again does not heal it"


def test_a_proxy_that_was_unhealthy_stays_so_and_is_no_evidence() -> None:
    proxies = add_proxies(4, **HEALTHY, failure_threshold=1)
    sick = add_proxies(6, **HEALTHY | {"verdict": "unhealthy", "probe_failures": 1, "probe_successes": 0})
    tell(sick, Outcome.TLS_FAILED)
    assert not ProbeTarget.objects.exists()
    tell(proxies, Outcome.TLS_FAILED)
    assert is_open()
    assert verdicts() == ["healthy"] * 4 + ["unhealthy"] * 6
    tell(sick[:1])
    assert verdicts()[4] == "healthy", "a success is a success"


def test_a_lone_bad_proxy_falls_and_is_not_excused_afterwards() -> None:
    proxies = add_proxies(10, **HEALTHY, failure_threshold=1)
    tell(proxies[9:], Outcome.TLS_FAILED)
    tell(proxies[:5])
    assert not ProbeTarget.objects.exists(), "others come through: it is the proxy"
    tell(proxies[:3], Outcome.TLS_FAILED)
    assert is_open()
    assert verdicts() == ["healthy"] * 9 + ["unhealthy"]


def test_failures_before_the_wave_still_count_after_it() -> None:
    proxies = add_proxies(10, **HEALTHY)
    Proxy.objects.filter(pk=proxies[0].pk).update(probe_failures=2, probe_successes=0)
    tell(proxies[:3], Outcome.TLS_FAILED)
    assert is_open()
    proxies[0].refresh_from_db()
    assert (proxies[0].verdict, proxies[0].probe_failures) == ("healthy", 2), "it fell, and was restored to that"
    tell(proxies[5:8])
    assert not is_open()
    tell(proxies[:1], Outcome.TLS_FAILED)
    assert verdicts()[0] == "unhealthy"


@pytest.mark.parametrize("count", [1, 2])
def test_a_fleet_of_one_or_two_can_not_tell(count: int) -> None:
    proxies = add_proxies(count, **HEALTHY, failure_threshold=1)
    tell(proxies, Outcome.TLS_FAILED)
    assert verdicts() == ["unhealthy"] * count
    assert not ProbeTarget.objects.exists()


def test_each_target_is_judged_for_itself() -> None:
    ours = add_proxies(5, **HEALTHY, failure_threshold=1)
    theirs = add_proxies(5, **HEALTHY | {"health_url": "https://other.example/"}, failure_threshold=1)
    for one, other in zip(ours, theirs, strict=True):
        tell([one], Outcome.TLS_FAILED)
        tell([other])
    assert list(ProbeTarget.objects.values_list("host", flat=True)) == [HOST]
    tell(theirs[:1], Outcome.TLS_FAILED)
    assert Proxy.objects.get(pk=theirs[0].pk).verdict == "unhealthy"


def test_proxies_that_die_are_not_excused() -> None:
    proxies = add_proxies(10, **HEALTHY, failure_threshold=1)
    tell(proxies, Outcome.CONNECT_REFUSED)
    assert verdicts() == ["unhealthy"] * 10
    assert not ProbeTarget.objects.exists()


def test_new_proxies_await_a_target_that_is_down() -> None:
    proxies = add_proxies(10, health_url=URL)
    for _ in range(4):
        tell(proxies, Outcome.TUNNEL_REFUSED)
    assert verdicts() == ["unknown"] * 10
    assert is_open()
    tell(proxies)
    assert verdicts() == ["healthy"] * 10
    assert not ProbeTarget.objects.exists()


def test_an_open_breaker_writes_nothing_while_nothing_changes() -> None:
    proxies = add_proxies(100, **HEALTHY)
    fold([result(proxy, Outcome.TLS_FAILED) for proxy in proxies], NOW)
    assert is_open()
    with CaptureQueriesContext(connection) as queries:
        fold([result(proxy, Outcome.TLS_FAILED) for proxy in proxies], NOW)
    assert {query["sql"].split()[0] for query in queries} == {"SELECT"}
    assert not any("FOR NO KEY UPDATE" in query["sql"] for query in queries)


def test_number_of_statements_does_not_grow_with_the_fleet() -> None:
    counts = []
    for size in (30, 600):
        proxies = add_proxies(size, **HEALTHY | {"health_url": f"https://of-{size}.example/"}, failure_threshold=1)
        with CaptureQueriesContext(connection) as queries:
            fold([result(proxy, Outcome.TLS_FAILED) for proxy in proxies], NOW)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_a_result_for_an_earlier_url_is_dropped() -> None:
    [proxy] = add_proxies(1, **HEALTHY, failure_threshold=1)
    late = result(proxy, Outcome.TLS_FAILED)
    Proxy.objects.update(health_url="https://other.example/")
    fold([late], NOW)
    assert verdicts() == ["healthy"]


def test_what_nobody_is_probed_with_any_more_is_forgotten() -> None:
    proxies = add_proxies(5, **HEALTHY)
    tell(proxies, Outcome.TLS_FAILED)
    assert forget_unused(NOW) == 0
    Proxy.objects.update(health_url="https://other.example/")
    assert forget_unused(NOW) == 1
    assert not ProbeTarget.objects.exists()
    assert len(events("ProbeTargetCleared")) == 3

"""The web process's page: the state of the fleet, as the database and the broker tell it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from celery import Celery, current_app
from django.db import OperationalError
from django.utils import timezone
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from health.tests.fleet import add_proxies
from leasing.ids import uuid7
from leasing.models import Cooldown, Lease
from proxyfleet import scrape
from proxyfleet.fleet.models import ClusterMirror, EventKind, Origin, ProviderState, Proxy, ProxyEvent
from proxyfleet.fleet.spec import Mode
from proxyfleet.observability import metrics

DOCUMENT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


@pytest.fixture(autouse=True)
def _connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's transaction goes on after a request."""
    monkeypatch.setattr(scrape, "close_old_connections", lambda: None)


def scraped() -> str:
    told: list[str] = []

    def start_response(status: str, *_: object) -> Callable[[bytes], object]:
        told.append(status)
        return lambda _data: None

    page = b"".join(scrape.application({}, start_response)).decode()
    assert told == ["200 OK"]
    return page


def read(metric: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric, by the values of its labels in the order of their names."""
    page = scraped()
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == metric
    }


@pytest.mark.django_db
def test_proxies_are_counted_by_phase_provider_and_mode() -> None:
    add_proxies(3)
    add_proxies(2, mode=Mode.MANAGED.value, provider="east", phase="Ready")
    found = read("proxyfleet_proxies")
    assert {labels: value for labels, value in found.items() if value} == {
        ("External", "Pending", "external"): 3,
        ("Managed", "Ready", "east"): 2,
    }
    assert found["Managed", "Failed", "east"] == 0, "a phase that nobody is in is zero, and not missing"


@pytest.mark.django_db
def test_only_leases_and_cooldowns_that_go_on_are_counted() -> None:
    now = timezone.now()
    (proxy,) = add_proxies()
    for minutes in (-1, 5, 5):
        until = now + timedelta(minutes=minutes)
        Lease.objects.create(id=uuid7(now), proxy=proxy, created_at=now, expires_at=until)
    Cooldown.objects.create(proxy=proxy, target="a.example", until=now + timedelta(minutes=5))
    Cooldown.objects.create(proxy=proxy, target="b.example", until=now - timedelta(minutes=5))
    assert read("proxyfleet_leases_active") == {(): 2}
    assert read("proxyfleet_cooldowns_active") == {(): 1}


@pytest.mark.django_db
def test_the_age_is_that_of_the_probe_that_waits_longest() -> None:
    now = timezone.now()
    add_proxies(10, health_interval_seconds=10)
    ProviderState.objects.create(entry="external", probed_until=now - timedelta(seconds=100))
    (age,) = read("proxyfleet_healthcheck_age_seconds").values()
    assert 90 <= age <= 100 + 60, "a slot came within the interval after the last that was served"
    ProviderState.objects.update(probed_until=timezone.now() + timedelta(seconds=60))
    assert read("proxyfleet_healthcheck_age_seconds") == {("external",): 0}


@pytest.mark.django_db
def test_a_fleet_that_was_never_probed_waits_since_it_was_declared() -> None:
    add_proxies(created_at=timezone.now() - timedelta(seconds=50))
    (age,) = read("proxyfleet_healthcheck_age_seconds").values()
    assert 50 <= age <= 50 + 60


@pytest.mark.django_db
def test_targets_are_told_as_a_share() -> None:
    up, down = {"name": "a", "ready": True}, {"name": "b", "ready": False}
    ProviderState.objects.create(entry="up", check_ready=True, check_targets=[up, up])
    ProviderState.objects.create(entry="half", check_ready=False, check_targets=[up, down])
    ProviderState.objects.create(entry="down", check_ready=False, check_targets=[down])
    ProviderState.objects.create(entry="new")
    assert read("proxyfleet_provider_target_up") == {("up",): 1, ("half",): 0.5, ("down",): 0}


@pytest.mark.django_db
@pytest.mark.usefixtures("connected")
def test_the_lag_of_the_bridge_is_told_both_ways() -> None:
    now = timezone.now()
    ClusterMirror.objects.create(complete_at=now - timedelta(seconds=30))
    assert read("proxyfleet_sync_lag_seconds")["out",] == 0
    (proxy,) = add_proxies(origin=Origin.CLUSTER, revision=2, published_revision=1)
    ProxyEvent.objects.create(
        proxy=proxy, proxy_uid=proxy.uid, at=now - timedelta(seconds=70), kind=EventKind.INSTANCE_CREATED
    )
    lag = read("proxyfleet_sync_lag_seconds")
    assert 30 <= lag["in",] <= 30 + 60
    assert 70 <= lag["out",] <= 70 + 60
    Proxy.objects.update(published_revision=2)
    assert read("proxyfleet_sync_lag_seconds")["out",] == 0


@pytest.mark.django_db
def test_nothing_is_said_of_a_bridge_where_there_is_none() -> None:
    assert read("proxyfleet_sync_lag_seconds") == {}


@pytest.mark.django_db
def test_queues_are_as_deep_as_the_broker_says() -> None:
    before = read("proxyfleet_queue_depth")
    assert ("checks",) in before
    for _ in range(3):
        current_app.send_task("nobody.takes.it", queue="checks")
    try:
        assert read("proxyfleet_queue_depth")["checks",] == before["checks",] + 3
    finally:
        with current_app.connection_for_write() as connection:
            connection.default_channel.queue_purge("checks")  # type: ignore[attr-defined]  # has it


@pytest.mark.django_db
def test_a_broker_that_is_away_is_no_reason_to_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Celery(broker="redis://127.0.0.1:1/0", set_as_current=False)
    away.conf.task_queues = current_app.conf.task_queues
    monkeypatch.setattr("proxyfleet.fleet.gauges.current_app", away)
    assert read("proxyfleet_queue_depth") == {}
    assert read("proxyfleet_leases_active") == {(): 0}


@pytest.mark.django_db
def test_a_database_that_is_away_leaves_what_was_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_now: object) -> None:
        raise OperationalError("the database has gone")

    monkeypatch.setattr("proxyfleet.fleet.gauges.read", refuse)
    page = scraped()
    assert "proxyfleet_lease_requests_total" in page
    assert "proxyfleet_leases_active" not in page
    assert "the database has gone" in caplog.text


def test_every_metric_is_in_the_document_with_its_labels_and_no_other() -> None:
    listed = {
        name: (kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in re.findall(r"^\| `(proxyfleet_\w+)` \| (\w+) \|([^|]*)\|", DOCUMENT, re.MULTILINE)
    }
    counted = {
        metric.name + ("_total" if metric.type == "counter" else ""): (metric.type, frozenset(wrapper._labelnames))
        for wrapper in metrics.COUNTED
        for metric in wrapper.describe()
    }
    defined = {id(wrapper) for wrapper in vars(metrics).values() if isinstance(wrapper, MetricWrapperBase)}
    assert defined == {id(wrapper) for wrapper in metrics.COUNTED}, "none is forgotten on the page"
    read_ = {reading.name: ("gauge", frozenset(reading.labels)) for reading in metrics.READ}
    assert listed == counted | read_


def test_every_query_of_the_document_asks_for_metrics_that_exist() -> None:
    known = set(re.findall(r"^\| `(proxyfleet_\w+)`", DOCUMENT, re.MULTILINE))
    known |= {f"{name}_{suffix}" for name in known for suffix in ("bucket", "sum", "count")}
    assert set(re.findall(r"proxyfleet_\w+", DOCUMENT)) <= known

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from health.batches import Batch, claim_due, next_slot, probeable, release
from health.schedule import epoch_ms, next_slot_ms
from health.tests.fleet import add_proxies
from proxyfleet.fleet.models import ProviderState, Proxy

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
START_WITHIN = timedelta(seconds=20)


def claim(now: datetime, entry: str = "external") -> Batch | None:
    return claim_due(entry, now, start_within=START_WITHIN)


def served(batch: Batch | None) -> list[int]:
    """The ids of a batch that was probed."""
    if batch is None:
        return []
    release(batch, unserved=())
    return [proxy.pk for proxy in batch.proxies]


@pytest.mark.parametrize("interval", [1, 7, 30, 3600, 86_400])
def test_postgresql_computes_the_same_slots(interval: int) -> None:
    add_proxies(50, health_interval_seconds=interval)
    for now in (NOW, NOW + timedelta(milliseconds=1), NOW + timedelta(days=999, seconds=0.5)):
        for proxy in Proxy.objects.annotate(slot_ms=next_slot(now)):
            assert proxy.slot_ms == next_slot_ms(proxy.uid, interval, now)


def test_every_slot_is_served_once_whatever_the_ticks() -> None:
    proxies = add_proxies(40, health_interval_seconds=30) + add_proxies(10, health_interval_seconds=7)
    assert len(served(claim(NOW))) == 50
    ticks = [NOW + timedelta(seconds=seconds) for seconds in (0, 1, 2, 3, 3.001, 9, 20, 21, 29, 30, 90, 91, 100)]
    for previous, now in pairwise(ticks):
        expected = {
            proxy.pk
            for proxy in proxies
            if next_slot_ms(proxy.uid, proxy.health_interval_seconds, previous) <= epoch_ms(now)
        }
        assert Counter(served(claim(now))) == Counter(expected)


def test_a_batch_that_overruns_does_not_overlap_itself() -> None:
    add_proxies(5)
    first = claim(NOW)
    assert first is not None
    later = NOW + timedelta(seconds=29)
    assert claim(later) is None
    release(first, unserved=())
    assert claim(later) is not None


def test_entries_do_not_wait_for_each_other() -> None:
    add_proxies(1)
    [here] = add_proxies(1, mode="Managed", provider="here", provider_id="here://x")
    assert claim(NOW) is not None
    assert served(claim(NOW, "here")) == [here.pk]


def test_a_dead_workers_claim_expires() -> None:
    add_proxies(1, health_timeout_seconds=10, health_interval_seconds=10)
    assert claim(NOW) is not None
    assert claim(NOW + timedelta(seconds=59)) is None
    assert claim(NOW + timedelta(seconds=61)) is not None


def test_what_was_not_served_stays_due() -> None:
    add_proxies(9, health_interval_seconds=30)
    assert len(served(claim(NOW))) == 9
    later = NOW + timedelta(seconds=30)
    batch = claim(later)
    assert batch is not None
    unserved = [proxy.pk for proxy in batch.proxies[6:]]
    release(batch, unserved=unserved)
    assert served(claim(later)) == unserved


@pytest.mark.parametrize("seconds", [20, 30, 31, 60])
def test_in_a_fleet_that_is_too_large_every_proxy_has_its_turn(seconds: int) -> None:
    """However long the batches take: also as long as the interval, which would begin each at the same place."""
    add_proxies(100, health_interval_seconds=30)
    served_times: Counter[int] = Counter()
    for number in range(20):
        batch = claim(NOW + number * timedelta(seconds=seconds))
        assert batch is not None
        served_times.update(proxy.pk for proxy in batch.proxies[:25])
        release(batch, unserved=[proxy.pk for proxy in batch.proxies[25:]])
    assert len(served_times) == 100
    assert all(4 <= times <= 6 for times in served_times.values()), "each as often as the others, give or take one"


def test_a_clock_that_was_set_back_does_not_stop_the_probes() -> None:
    proxies = add_proxies(3)
    assert len(served(claim(NOW))) == 3
    earlier = NOW - timedelta(hours=1)
    assert set(served(claim(earlier))) == {proxy.pk for proxy in proxies}
    assert served(claim(earlier)) == []


def test_a_lost_claim_releases_nothing() -> None:
    add_proxies(1)
    lost = claim(NOW)
    assert lost is not None
    assert claim(NOW + timedelta(hours=1)) is not None
    held = ProviderState.objects.get()
    release(lost, unserved=[proxy.pk for proxy in lost.proxies])
    assert ProviderState.objects.values().get() == ProviderState.objects.filter(pk=held.pk).values().get()
    assert claim(NOW + timedelta(hours=1, seconds=1)) is None


def test_a_tick_that_finds_nothing_due_writes_nothing() -> None:
    add_proxies(3, health_interval_seconds=86_400, health_timeout_seconds=10)
    served(claim(NOW))
    with CaptureQueriesContext(connection) as queries:
        assert claim(NOW) is None
    assert not [query for query in queries if query["sql"].startswith(("INSERT", "UPDATE"))]


def test_who_is_probed() -> None:
    [external] = add_proxies(1)
    [of_a_lost_entry] = add_proxies(1, mode="Managed", provider="gone", provider_id="gone://x")
    add_proxies(1, address="", address_port=None)
    add_proxies(1, deletion_requested_at=NOW)
    assert set(probeable().values_list("pk", flat=True)) == {external.pk, of_a_lost_entry.pk}
    assert set(served(claim(NOW))) == {external.pk, of_a_lost_entry.pk}

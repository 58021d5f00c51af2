from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from health.batches import Batch, claim_due, latest_slot, probeable, release
from health.schedule import epoch_ms, latest_slot_ms
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
        for proxy in Proxy.objects.annotate(slot_ms=latest_slot(now)):
            assert proxy.slot_ms == latest_slot_ms(proxy.uid, interval, now)


def test_every_slot_is_served_once_whatever_the_ticks() -> None:
    proxies = add_proxies(40, health_interval_seconds=30) + add_proxies(10, health_interval_seconds=7)
    assert len(served(claim(NOW))) == 50
    ticks = [NOW + timedelta(seconds=seconds) for seconds in (0, 1, 2, 3, 3.001, 9, 20, 21, 29, 30, 90, 91, 100)]
    for previous, now in pairwise(ticks):
        expected = {
            proxy.pk
            for proxy in proxies
            if latest_slot_ms(proxy.uid, proxy.health_interval_seconds, now) > epoch_ms(previous)
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
    add_proxies(9)
    batch = claim(NOW)
    assert batch is not None
    unserved = [proxy.pk for proxy in batch.proxies[6:]]
    release(batch, unserved=unserved)
    assert served(claim(NOW)) == unserved


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

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from health import latency
from health.engine import probe_due
from health.models import ProbeMinute
from health.tests.fleet import add_proxies, peer
from health.tests.peers import answer, stay_silent

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)


def counted(durations: list[float]) -> list[int]:
    latency.record("e", durations, NOW)
    return list(ProbeMinute.objects.get().counts)


@pytest.mark.django_db
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95, 1])
def test_a_quantile_is_off_by_less_than_a_quarter(share: float) -> None:
    chance = random.Random(1)
    durations = sorted(chance.lognormvariate(-1, 1) for _ in range(2000))
    found = latency.quantile(counted(durations), share)
    true = durations[max(0, round(share * 2000) - 1)]
    assert found is not None
    assert true / latency.GROWTH <= found <= true * latency.GROWTH


@pytest.mark.django_db
def test_counts_add_up() -> None:
    latency.record("e", [0.1, 200], NOW)
    latency.record("e", [0.1, 0], NOW)
    latency.record("other", [0.1], NOW)
    latency.record("e", [0.1], NOW + timedelta(minutes=1))
    [counts] = latency.by_minute(NOW.replace(second=0), NOW + timedelta(seconds=29)).values()
    assert sum(counts) == 5
    assert counts[-1] == 1, "what takes longer than any bound is counted too"


@pytest.mark.django_db
def test_nothing_is_nothing() -> None:
    latency.record("e", [], NOW)
    assert not ProbeMinute.objects.exists()
    assert latency.quantile([], 0.5) is None
    assert latency.quantile([0, 0], 0.5) is None


@pytest.mark.django_db(transaction=True)
def test_the_engine_counts_the_good_probes_of_a_batch() -> None:
    with peer(answer(b"HTTP/1.1 204 No Content\r\n\r\n")) as port, peer(stay_silent) as silent:
        add_proxies(5, address_port=port)
        add_proxies(1, address_port=silent, health_timeout_seconds=1)
        assert probe_due("external", NOW) == 6
    row = ProbeMinute.objects.get()
    assert (row.entry, row.minute, sum(row.counts)) == ("external", NOW.replace(second=0), 5)

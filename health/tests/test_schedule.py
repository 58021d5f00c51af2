from __future__ import annotations

import itertools
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from health.schedule import epoch_ms, next_slot_ms, phase_ms

START = datetime(2026, 1, 1, tzinfo=UTC)
INTERVALS = st.integers(1, 86_400)
GAPS = st.lists(st.timedeltas(timedelta(microseconds=1), timedelta(days=2)), min_size=1, max_size=30)


def is_due(uid: UUID, interval: int, previous: datetime, now: datetime) -> bool:
    return next_slot_ms(uid, interval, previous) <= epoch_ms(now)


def slots_between(uid: UUID, interval: int, begin: datetime, end: datetime) -> int:
    """Counted the slow way: multiples of the interval, shifted, in (begin, end]."""
    step, shift = interval * 1000, phase_ms(uid, interval)
    first = next(k for k in itertools.count((epoch_ms(begin) // step) - 2) if k * step + shift > epoch_ms(begin))
    last = next(k for k in itertools.count((epoch_ms(end) // step) + 2, -1) if k * step + shift <= epoch_ms(end))
    return last - first + 1


@settings(deadline=None)
@given(st.uuids(), INTERVALS, GAPS)
def test_every_slot_is_served_by_exactly_one_tick(uid: UUID, interval: int, gaps: list[timedelta]) -> None:
    previous, passed = START, 0
    for gap in gaps:
        now = previous + gap
        slots = slots_between(uid, interval, previous, now)
        assert is_due(uid, interval, previous, now) == (slots > 0)
        previous, passed = now, passed + slots
    assert passed == slots_between(uid, interval, START, previous)


@settings(deadline=None)
@given(st.uuids(), st.integers(1, 600))
def test_regular_ticks_probe_once_an_interval(uid: UUID, interval: int) -> None:
    ticks = [START + timedelta(seconds=second) for second in range(4 * interval + 1)]
    due = [now for previous, now in itertools.pairwise(ticks) if is_due(uid, interval, previous, now)]
    assert len(due) == 4
    assert {later - earlier for earlier, later in itertools.pairwise(due)} == {timedelta(seconds=interval)}


@settings(deadline=None)
@given(st.uuids(), INTERVALS, st.integers(1, 1000))
def test_same_moment_twice_serves_nothing(uid: UUID, interval: int, seconds: int) -> None:
    now = START + timedelta(seconds=seconds)
    assert not is_due(uid, interval, now, now)


def test_a_fleet_spreads_evenly() -> None:
    """Within six standard deviations of a binomial spread in every second of the interval."""
    fleet = [uuid4() for _ in range(30_000)]
    per_second = Counter(phase_ms(uid, 30) // 1000 for uid in fleet)
    assert set(per_second) == set(range(30))
    assert max(abs(count - 1000) for count in per_second.values()) < 6 * 1000**0.5

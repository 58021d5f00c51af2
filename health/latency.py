"""How long good probes take: counted in buckets by the minute, so that a day of a large fleet is a few numbers.

A batch adds its counts in one statement; no row of a proxy is touched, and what is kept of a minute does not depend on
how many proxies were probed in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import connection

from health.models import ProbeMinute

KEPT = timedelta(days=1)
"""Longer than anybody who reads the counts stays away."""

GROWTH = 1.25
BOUNDS = tuple(0.001 * GROWTH**step for step in range(51))
"""Upper ends of the buckets, in seconds: from one millisecond to 70 s, each a quarter above the one before."""

_ADD = """
insert into health_probeminute as kept (entry, minute, counts) values (%s, %s, %s::integer[])
on conflict (minute, entry) do update set counts = (
  select array_agg(before + added order by place)
  from unnest(kept.counts, excluded.counts) with ordinality as both_counts (before, added, place)
)
"""


class Tally:
    """What a turn of probing measured for ``entry``, written a minute at a time; a worker that is killed loses one."""

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._seconds: list[float] = []
        self._minute: datetime | None = None

    def add(self, seconds: Iterable[float], now: datetime) -> None:
        minute = now.replace(second=0, microsecond=0)
        if self._minute != minute:
            self.write()
            self._minute = minute
        self._seconds += seconds

    def write(self) -> None:
        if self._minute is not None:
            record(self._entry, self._seconds, self._minute)
        self._seconds = []


def record(entry: str, seconds: Iterable[float], now: datetime) -> None:
    """Add the durations of good probes to those of this minute."""
    counts = [0] * (len(BOUNDS) + 1)
    for duration in seconds:
        counts[bisect_left(BOUNDS, duration)] += 1
    if any(counts):
        with connection.cursor() as cursor:
            cursor.execute(_ADD, [entry, now.replace(second=0, microsecond=0), counts])


def by_minute(since: datetime, until: datetime) -> Mapping[datetime, Sequence[int]]:
    """The counts of all entries together, for each minute from ``since`` to before ``until`` that has any."""
    found: dict[datetime, Sequence[int]] = {}
    rows = ProbeMinute.objects.filter(minute__gte=since, minute__lt=until).values_list("minute", "counts")
    for minute, counts in rows:
        found[minute] = added(found.get(minute, ()), counts)
    return found


def prune(now: datetime) -> None:
    """Delete what is older than `KEPT`."""
    ProbeMinute.objects.filter(minute__lt=now - KEPT).delete()


def added(one: Sequence[int], other: Sequence[int]) -> Sequence[int]:
    """The sum of two lists of counts; an empty one counts nothing."""
    if not one or not other:
        return one or other
    return [a + b for a, b in zip(one, other, strict=True)]


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The duration in seconds that ``share`` of the counted probes did not exceed; None when none was counted.

    Probes are taken to be spread evenly within a bucket, so the answer is off by less than a quarter.
    """
    total = sum(counts)
    if total == 0:
        return None
    wanted = share * total
    below = 0
    for place, count in enumerate(counts):
        if count and below + count >= wanted:
            upper = BOUNDS[min(place, len(BOUNDS) - 1)]
            lower = BOUNDS[place - 1] if place else 0.0
            return lower + (upper - lower) * (wanted - below) / count
        below += count
    return BOUNDS[-1]

"""The last day of one proxy, drawn: in which phase it was, and how long its probes took. Pure but for two reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from proxyfleet.fleet.models import Proxy, ProxyEvent
from proxyfleet.fleet.phases import Phase
from proxyfleet.fleet.ports import ProbeSlot, ports

SPAN = timedelta(hours=24)
WIDTH, HEIGHT = 960, 120
"""Of the curve, in the units of its picture."""
GAP = timedelta(minutes=15)
"""Longer without a good probe, and the curve is interrupted."""
TICKS = 6


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in one phase, as parts of the picture's width."""

    phase: str
    left: float
    width: float
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Chart:
    begin: datetime
    end: datetime
    stretches: list[Stretch]
    ready: float | None
    """Share of the time since it was declared, within the span, that it was Ready."""
    slots: Sequence[ProbeSlot]
    curves: list[str]
    """Points of polylines."""
    ceiling: int
    """Milliseconds at the upper edge."""
    good: int
    failed: int
    ticks: list[tuple[float, datetime]]

    @property
    def ready_percent(self) -> str:
        """Never rounded up to all of it."""
        share = self.ready or 0.0
        return "100 %" if share == 1 else f"{min(share * 100, 99.99):.2f} %"

    @property
    def phases(self) -> list[str]:
        return list(dict.fromkeys(stretch.phase for stretch in self.stretches))

    @property
    def quickest(self) -> int:
        return min(_latencies(self.slots))

    @property
    def median(self) -> int:
        ordered = sorted(_latencies(self.slots))
        return ordered[len(ordered) // 2]

    @property
    def slowest(self) -> int:
        return max(_latencies(self.slots))


def chart_of(proxy: Proxy, now: datetime) -> Chart:
    begin = now - SPAN
    changes = list(
        ProxyEvent.objects.filter(proxy_uid=proxy.uid, kind="PhaseChanged", at__gt=begin)
        .order_by("id")
        .values_list("at", "old_phase", "new_phase")
    )
    return draw(proxy.created_at, proxy.phase, changes, ports.probes.last_day(proxy.uid, now), begin=begin, end=now)


def draw(
    created_at: datetime,
    phase: str,
    changes: Sequence[tuple[datetime, str, str]],
    slots: Sequence[ProbeSlot],
    *,
    begin: datetime,
    end: datetime,
) -> Chart:
    """``changes``, in their order, are all of the span; before the first, and without any, the phase is known too."""
    stretches = [
        Stretch(name, _share(since, begin, end), _share(until, begin, end) - _share(since, begin, end), since, until)
        for name, since, until in _phases(max(created_at, begin), phase, changes, end)
    ]
    known = sum(stretch.width for stretch in stretches)
    ready = sum(stretch.width for stretch in stretches if stretch.phase == Phase.READY)
    latencies = _latencies(slots)
    ceiling = _round_up(max(latencies, default=1))
    return Chart(
        begin=begin,
        end=end,
        stretches=stretches,
        ready=ready / known if known else None,
        slots=slots,
        curves=[_points(part, begin, end, ceiling) for part in _unbroken(slots)],
        ceiling=ceiling,
        good=sum(slot.good for slot in slots),
        failed=sum(slot.failed for slot in slots),
        ticks=[(100 * number / TICKS, begin + number * (end - begin) / TICKS) for number in range(TICKS + 1)],
    )


def _phases(
    since: datetime, phase: str, changes: Iterable[tuple[datetime, str, str]], end: datetime
) -> Iterable[tuple[str, datetime, datetime]]:
    current = phase
    for number, (at, old, new) in enumerate(changes):
        current = old if number == 0 else current
        if at > since:
            yield current, since, at
            since = at
        current = new
    if end > since:
        yield current, since, end


def _share(moment: datetime, begin: datetime, end: datetime) -> float:
    """In per cent of the width."""
    return 100 * max(0.0, min(1.0, (moment - begin) / (end - begin)))


def _latencies(slots: Iterable[ProbeSlot]) -> list[int]:
    return [slot.milliseconds for slot in slots if slot.milliseconds is not None]


def _round_up(value: int) -> int:
    """To 1, 2 or 5 with zeros."""
    power = 1
    while True:
        for step in (1, 2, 5):
            if step * power >= value:
                return step * power
        power *= 10


def _unbroken(slots: Iterable[ProbeSlot]) -> Iterable[list[ProbeSlot]]:
    part: list[ProbeSlot] = []
    for slot in slots:
        if slot.milliseconds is None:
            continue
        if part and slot.at - part[-1].at > GAP:
            yield part
            part = []
        part.append(slot)
    if part:
        yield part


def _points(part: list[ProbeSlot], begin: datetime, end: datetime, ceiling: int) -> str:
    points = [
        f"{WIDTH * _share(slot.at, begin, end) / 100:.1f},{HEIGHT * (1 - (slot.milliseconds or 0) / ceiling):.1f}"
        for slot in part
    ]
    # A single point would draw nothing.
    return " ".join(points if len(points) > 1 else points * 2)

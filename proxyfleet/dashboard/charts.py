"""A day as a picture: where lines, bars and labels go. Pure: the template draws it as SVG, with text around it.

The drawing is as wide as there are steps and 100 high, and is stretched to its place; text is not, so it can be read at
any width.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

STEP = timedelta(minutes=10)
STEPS = 144
HOUR = timedelta(hours=1)
LABELLED_HOURS = 4
"""Full hours that are multiples of it get a label."""

_INTERVALS = 4
_ROUND = (1, 2, 2.5, 5, 10)

Value = float | None
Combine = Callable[[Sequence[float]], float]


@dataclass(frozen=True, slots=True)
class Series:
    label: str
    name: str
    """Its colour: one of the stylesheet's ``fleet-chart-…``."""
    values: Sequence[Value]
    """One for each step; None: not known."""


@dataclass(frozen=True, slots=True)
class Tick:
    label: str
    at: float
    """Percent of the way, from the left or from the bottom."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One series in the picture."""

    label: str
    name: str
    path: str
    """Of SVG."""
    now: str
    """The newest value that is known, with its unit."""


@dataclass(frozen=True, slots=True)
class Chart:
    key: str
    title: str
    unit: str
    steps: int
    bars: bool
    series: Sequence[Drawn]
    across: Sequence[Tick]
    up: Sequence[Tick]
    summary: str
    """For whoever can't see it."""
    table: Sequence[Sequence[str]]
    """By the hour: its time, and a value of each series."""
    values: str
    """JSON for the pointer: the times, and the texts of each series."""

    @property
    def is_empty(self) -> bool:
        return not any(drawn.path for drawn in self.series)


def begin_of_day(now: datetime) -> datetime:
    """The first of the STEPS steps of which the last holds the minute before ``now``."""
    last = (now - timedelta(minutes=1)).replace(second=0, microsecond=0)
    return last - timedelta(minutes=last.minute % (STEP // timedelta(minutes=1))) - (STEPS - 1) * STEP


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def draw(
    key: str,
    title: str,
    unit: str,
    series: Sequence[Series],
    begin: datetime,
    *,
    top: float | None = None,
    bars: bool = False,
    by_hour: Combine = mean,
) -> Chart:
    """``top`` is the end of the axis where it is known; ``by_hour`` makes the steps of an hour one value."""
    known = [value for each in series for value in each.values if value is not None]
    interval = _interval(max(known, default=0.0)) if top is None else top / _INTERVALS
    height = interval * _INTERVALS
    times = [begin + step * STEP for step in range(STEPS)]
    return Chart(
        key=key,
        title=title,
        unit=unit,
        steps=STEPS,
        bars=bars,
        series=[
            Drawn(
                each.label,
                each.name,
                _bars(each.values, height) if bars else _line(each.values, height),
                _text(next((value for value in reversed(each.values) if value is not None), None), unit),
            )
            for each in series
        ],
        across=[
            Tick(f"{time:%H:%M}", step * 100 / STEPS)
            for step, time in enumerate(times)
            if time.minute == 0 and time.hour % LABELLED_HOURS == 0
        ],
        up=[Tick(f"{number * interval:g}", number * 100 / _INTERVALS) for number in range(_INTERVALS + 1)],
        summary=" ".join(_sentence(each, times, unit) for each in series),
        table=[
            (f"{hour:%H:%M}", *(_text(_combined(part, by_hour), unit) for part in parts))
            for hour, parts in _hours(series, times)
        ],
        values=json.dumps(
            {
                "times": [f"{time:%H:%M} to {time + STEP:%H:%M}" for time in times],
                "series": [[_text(value, unit) for value in each.values] for each in series],
            },
            ensure_ascii=False,
        ),
    )


def _interval(highest: float) -> float:
    """The smallest round number of which _INTERVALS reach ``highest``."""
    if highest <= 0:
        return 1
    wanted = highest / _INTERVALS
    size: float = 10.0 ** math.floor(math.log10(wanted))
    return next(round(factor * size, 12) for factor in _ROUND if factor * size >= wanted * (1 - 1e-9))


def _line(values: Sequence[Value], height: float) -> str:
    """Through the middle of each step; a step between two that are not known is a dash of its own width."""
    parts = []
    before: Value = None
    for step, value in enumerate(values):
        if value is not None:
            y = _y(value, height)
            alone = before is None and (step + 1 == len(values) or values[step + 1] is None)
            if alone:
                parts.append(f"M{step} {y}h1")
            else:
                parts.append(f"{'M' if before is None else 'L'}{step + 0.5} {y}")
        before = value
    return "".join(parts)


def _bars(values: Sequence[Value], height: float) -> str:
    bars = ((f"{step + 0.1:g}", _y(value, height)) for step, value in enumerate(values) if value)
    return "".join(f"M{x} 100V{y}h0.8V100z" for x, y in bars)


def _y(value: float, height: float) -> str:
    return f"{100 - min(value / height, 1) * 100:.2f}".rstrip("0").rstrip(".")


def _text(value: Value, unit: str) -> str:
    if value is None:
        return "not known"
    number = f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
    return f"{number} {unit}"


def _sentence(series: Series, times: Sequence[datetime], unit: str) -> str:
    known = [(value, time) for value, time in zip(series.values, times, strict=True) if value is not None]
    if not known:
        return f"{series.label}: nothing is known."
    (lowest, low_at), (highest, high_at) = min(known), max(known)
    return (
        f"{series.label}: {_text(known[-1][0], unit)} last, lowest {_text(lowest, unit)} at {low_at:%H:%M}, "
        f"highest {_text(highest, unit)} at {high_at:%H:%M}."
    )


def _hours(series: Sequence[Series], times: Sequence[datetime]) -> Iterator[tuple[datetime, list[list[float]]]]:
    """The newest first: each hour, with the values that each series has in it."""
    hours: dict[datetime, list[list[float]]] = {}
    for step, time in enumerate(times):
        parts = hours.setdefault(time.replace(minute=0), [[] for _ in series])
        for part, each in zip(parts, series, strict=True):
            value = each.values[step]
            if value is not None:
                part.append(value)
    return reversed(hours.items())


def _combined(values: Sequence[float], by_hour: Combine) -> Value:
    return by_hour(values) if values else None

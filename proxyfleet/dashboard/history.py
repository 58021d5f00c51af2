"""The last day as charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from health import latency
from proxyfleet.dashboard.charts import STEP, STEPS, Chart, Series, Value, begin_of_day, draw
from proxyfleet.dashboard.models import FleetMinute

Step = Sequence[FleetMinute]


def charts(now: datetime, *, leasing: bool) -> list[Chart]:
    """``leasing``: whether leases and reports may be shown."""
    begin = begin_of_day(now)
    steps: list[list[FleetMinute]] = [[] for _ in range(STEPS)]
    for row in FleetMinute.objects.filter(minute__gte=begin, minute__lt=begin + STEPS * STEP):
        steps[(row.minute - begin) // STEP].append(row)
    probes = [_probes(step) for step in steps]

    def series(label: str, name: str, value: Callable[[Step], Value]) -> Series:
        return Series(label, name, [value(step) for step in steps])

    def quantile(label: str, name: str, share: float) -> Series:
        return Series(label, name, [_milliseconds(latency.quantile(counts, share)) for counts in probes])

    shown = [
        draw("healthy", "Healthy share", "%", [series("Ready", "good", _healthy)], begin, top=100),
        draw(
            "latency",
            "Probe latency",
            "ms",
            [quantile("Median", "calm", 0.5), quantile("95th percentile", "strong", 0.95)],
            begin,
        ),
        draw(
            "changes",
            "Phase changes",
            "in 10 min",
            [series("Changes", "calm", lambda step: float(sum(row.phase_changes for row in step)) if step else None)],
            begin,
            bars=True,
            by_hour=lambda values: sum(values) / len(values),
        ),
    ]
    if leasing:
        shown[2:2] = [
            draw("leases", "Leases", "a minute", [series("Granted", "calm", _a_minute("leases"))], begin),
            draw(
                "reports",
                "Reports",
                "a minute",
                [
                    series("Good", "good", _a_minute("reports_ok")),
                    series("Failed", "bad", _a_minute("reports_failed")),
                ],
                begin,
            ),
        ]
    return shown


def _healthy(step: Step) -> Value:
    """Percent of the proxies that were wanted; None while there were none."""
    seen = [(row.ready, row.proxies) for row in step if row.ready is not None and row.proxies]
    wanted = sum(proxies for _, proxies in seen)
    return 100 * sum(ready for ready, _ in seen) / wanted if wanted else None


def _a_minute(column: str) -> Callable[[Step], Value]:
    return lambda step: sum(getattr(row, column) for row in step) / len(step) if step else None


def _probes(step: Step) -> Sequence[int]:
    counts: Sequence[int] = ()
    for row in step:
        counts = latency.added(counts, row.probe_counts)
    return counts


def _milliseconds(seconds: Value) -> Value:
    return None if seconds is None else seconds * 1000

"""What a lease takes in a large fleet, a busy one and one that is often refused, against a small fleet at rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from statistics import median

from bench.calls import acquire, give_back
from bench.confidence import Bound, converge
from bench.http import Connection
from bench.results import Result
from bench.scale import Scale
from bench.stage import COOLDOWNS, COOLING_TARGET, LEASES_OUT, Stage

SELECTOR = "geo=r1"
COMPARISONS = {
    "p50, 10,000 proxies / 100": ("10,000", "100", Bound(1.25, "lower"), 1.10),
    "p50 with a selector, 10,000 / 100": ("10,000, selected", "100, selected", Bound(1.25, "lower"), 1.10),
    f"p50, {LEASES_OUT:,} leases out / none": ("leased", "10,000", Bound(1.25, "lower"), 1.10),
    f"p50, {COOLDOWNS:,} cooldowns / none": ("cooled", "10,000", Bound(2.0, "lower"), 1.3),
}
"""By name: which side against which, the bound and the goal."""


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    any_proxy, selected = acquire(target="example.com"), acquire(target="example.com", selector=SELECTOR)
    sides = {
        "100": ("small", any_proxy),
        "10,000": ("large", any_proxy),
        "100, selected": ("small", selected),
        "10,000, selected": ("large", selected),
        "leased": ("leased", any_proxy),
        "cooled": ("cooled", acquire(target=COOLING_TARGET)),
    }
    took: dict[str, list[float]] = {side: [] for side in sides}
    with ExitStack() as stack:
        addresses = {fleet: stack.enter_context(stage.web(fleet)) for fleet, _ in sides.values()}
        connections = {side: Connection(addresses[fleet]) for side, (fleet, _) in sides.items()}
        for connection in connections.values():
            stack.callback(connection.close)

        def block() -> Mapping[str, float]:
            """The median of a lease on each side: one client, which turns from side to side with every call."""
            times: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(scale.calls):
                for side, (_, wanted) in sides.items():
                    answer, seconds = connections[side].timed(wanted)
                    give_back(connections[side], answer)
                    times[side].append(seconds)
            for side, each in times.items():
                took[side] += each
            return {name: median(times[side]) / median(times[base]) for name, (side, base, *_) in COMPARISONS.items()}

        block()  # warms the processes up
        bounds = {name: bound for name, (_, _, bound, _) in COMPARISONS.items()}
        ratios = converge(block, bounds, least=scale.least, most=scale.most)
    for name, (side, base, bound, goal) in COMPARISONS.items():
        detail = f"{median(took[side]) * 1e3:.2f} ms against {median(took[base]) * 1e3:.2f} ms"
        yield Result.timed(name, ratios[name], bound, goal=goal, detail=detail)

"""What a lease takes in a large fleet, a busy one and one that is often refused, against a small fleet at rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from statistics import median

from bench.calls import acquire, give_back
from bench.http import Connection
from bench.results import Result
from bench.scale import Scale
from bench.stage import COOLDOWNS, COOLING_TARGET, LEASES_OUT, Stage

SELECTOR = "geo=r1"


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    any_proxy, selected = acquire(target="example.com"), acquire(target="example.com", selector=SELECTOR)
    refused = acquire(target=COOLING_TARGET)
    sides = {
        "100": ("small", any_proxy),
        "10,000": ("large", any_proxy),
        "100, selected": ("small", selected),
        "10,000, selected": ("large", selected),
        "leased": ("leased", any_proxy),
        "cooled": ("cooled", refused),
    }
    took = _p50(stage, sides, scale.samples)

    def result(name: str, side: str, base: str, gate: float, goal: float) -> Result:
        detail = f"{took[side] * 1e3:.2f} ms against {took[base] * 1e3:.2f} ms"
        return Result(name, took[side] / took[base], gate=gate, goal=goal, better="lower", detail=detail)

    yield result("p50, 10,000 proxies / 100", "10,000", "100", 1.25, 1.10)
    yield result("p50 with a selector, 10,000 / 100", "10,000, selected", "100, selected", 1.25, 1.10)
    yield result(f"p50, {LEASES_OUT:,} leases out / none", "leased", "10,000", 1.25, 1.10)
    yield result(f"p50, {COOLDOWNS:,} cooldowns / none", "cooled", "10,000", 2.0, 1.3)


def _p50(stage: Stage, sides: Mapping[str, tuple[str, bytes]], samples: int) -> Mapping[str, float]:
    """The median seconds of a lease on each side: one client, which turns from side to side with every call."""
    took: dict[str, list[float]] = {side: [] for side in sides}
    with ExitStack() as stack:
        addresses = {fleet: stack.enter_context(stage.web(fleet)) for fleet, _ in sides.values()}
        connections = {side: Connection(addresses[fleet]) for side, (fleet, _) in sides.items()}
        for connection in connections.values():
            stack.callback(connection.close)
        for number in range(samples + samples // 10):
            for side, (_, wanted) in sides.items():
                answer, seconds = connections[side].timed(wanted)
                give_back(connections[side], answer)
                if number >= samples // 10:  # those before warm the processes up
                    took[side].append(seconds)
    return {side: median(each) for side, each in took.items()}

"""What a probe of a proxy costs, from the row to the verdict, against a bare asyncio loop that fetches the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from statistics import median

from bench.confidence import Bound, converge
from bench.results import Result
from bench.scale import Scale
from bench.stage import Stage

PROXIES = 1_000
FLEET = 10_000
INTERVAL_SECONDS = 30
BOUND = Bound(1.5, "lower")


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    rounds = json.loads(stage.output("probed", "-m", "bench.probing", str(PROXIES), str(scale.least)))
    left = iter(rounds)

    def block() -> Mapping[str, float]:
        took = next(left)
        return {"probe": took["probe"] / took["bare"]}

    ratio = converge(block, {"probe": BOUND}, least=scale.least, most=scale.least)["probe"]
    bare, probe, rate = (median(took[what] for took in rounds) for what in ("bare", "probe", "rate"))
    detail = (
        f"{probe * 1e3:.2f} ms of a core against {bare * 1e3:.2f} ms; {rate:,.0f} a second, and"
        f" {FLEET:,} proxies every {INTERVAL_SECONDS} s take {probe * FLEET / INTERVAL_SECONDS:.0%} of a core"
    )
    yield Result.timed("probe / bare asyncio", ratio, BOUND, goal=1.2, detail=detail)

"""What a probe of a proxy costs, from the row to the verdict, against a bare asyncio loop that fetches the same."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bench.results import Result
from bench.scale import Scale
from bench.stage import Stage

FLEET = 10_000
INTERVAL_SECONDS = 30


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    proxies = scale.samples
    took = json.loads(stage.output("probed", "-m", "bench.probing", str(proxies), str(max(3, scale.rounds // 2))))
    share = took["probe"] * FLEET / INTERVAL_SECONDS
    detail = (
        f"{took['probe'] * 1e3:.2f} ms of a core against {took['bare'] * 1e3:.2f} ms; {took['rate']:,.0f} a second, and"
        f" {FLEET:,} proxies every {INTERVAL_SECONDS} s take {share:.0%} of a core"
    )
    yield Result(
        "probe / bare asyncio", took["probe"] / took["bare"], gate=1.5, goal=1.2, better="lower", detail=detail
    )

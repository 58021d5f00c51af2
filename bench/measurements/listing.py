"""The first page of the list of proxies, in a large fleet against a small one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from bench.confidence import Bound, converge
from bench.http import Connection, body_of, expect, request
from bench.results import Result
from bench.scale import Scale
from bench.stage import TOKEN, Stage

PAGE = 50
QUERIES = {"all": "", "available": "&available=true", "selector": "&selector=geo%3Dr1"}
BOUND = Bound(1.5, "lower")
CALLS = 5
"""Of a block on each side: a page takes as long as ten leases."""


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    took: dict[tuple[str, str], list[float]] = {(fleet, kind): [] for fleet in ("small", "large") for kind in QUERIES}
    with stage.web("small") as small, stage.web("large") as large:
        connections = {"small": Connection(small), "large": Connection(large)}

        def block() -> Mapping[str, float]:
            for _ in range(CALLS):
                for (fleet, kind), seconds in took.items():
                    limit = 5 if kind == "selector" else PAGE  # all that the small fleet has of one region
                    path = f"/v1/proxies?limit={limit}{QUERIES[kind]}"
                    answer, each = connections[fleet].timed(request("GET", path, TOKEN))
                    expect(answer, b"200")
                    assert len(body_of(answer)["items"]) == limit
                    seconds.append(each)
            return {
                kind: median(took["large", kind][-CALLS:]) / median(took["small", kind][-CALLS:]) for kind in QUERIES
            }

        block()
        ratios = converge(block, dict.fromkeys(QUERIES, BOUND), least=scale.least, most=scale.most)
        for connection in connections.values():
            connection.close()
    for kind in QUERIES:
        detail = f"{median(took['large', kind]) * 1e3:.2f} ms against {median(took['small', kind]) * 1e3:.2f} ms"
        yield Result.timed(f"first page, 10,000 / 100, {kind}", ratios[kind], BOUND, goal=1.2, detail=detail)

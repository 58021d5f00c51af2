"""The first page of the list of proxies, in a large fleet against a small one."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.http import Connection, body_of, expect, request
from bench.results import Result
from bench.scale import Scale
from bench.stage import TOKEN, Stage

PAGE = 50
QUERIES = {"all": "", "available": "&available=true", "selector": "&selector=geo%3Dr1"}


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    took: dict[tuple[str, str], list[float]] = {(fleet, kind): [] for fleet in ("small", "large") for kind in QUERIES}
    with stage.web("small") as small, stage.web("large") as large:
        connections = {"small": Connection(small), "large": Connection(large)}
        for _ in range(max(scale.samples // 10, 50)):
            for (fleet, kind), seconds in took.items():
                limit = 5 if kind == "selector" else PAGE  # all that the small fleet has of one region
                path = f"/v1/proxies?limit={limit}{QUERIES[kind]}"
                answer, each = connections[fleet].timed(request("GET", path, TOKEN))
                expect(answer, b"200")
                assert len(body_of(answer)["items"]) == limit
                seconds.append(each)
        for connection in connections.values():
            connection.close()
    p50 = {side: median(each) for side, each in took.items()}
    for kind in QUERIES:
        ours, base = p50["large", kind], p50["small", kind]
        detail = f"{ours * 1e3:.2f} ms against {base * 1e3:.2f} ms"
        yield Result(
            f"first page, 10,000 / 100, {kind}", ours / base, gate=1.5, goal=1.2, better="lower", detail=detail
        )

"""How much dearer the truth is that nothing is free, in a fleet of 10,000 proxies that are all leased out."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.calls import acquire, give_back
from bench.http import Connection, expect
from bench.results import Result
from bench.scale import Scale
from bench.stage import Stage


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    wanted = acquire(target="example.com")
    grants, refusals = [], []
    with stage.web("leased") as free, stage.web("full") as full:
        granting, refusing = Connection(free), Connection(full)
        for _ in range(scale.samples // 2):
            answer, seconds = granting.timed(wanted)
            give_back(granting, answer)
            grants.append(seconds)
            answer, seconds = refusing.timed(wanted)
            expect(answer, b"409")
            refusals.append(seconds)
        granting.close()
        refusing.close()
    grant, refusal = median(grants), median(refusals)
    detail = f"{refusal * 1e3:.2f} ms against {grant * 1e3:.2f} ms; with the count of each cause and Retry-After"
    yield Result("none, full fleet / grant", refusal / grant, gate=3, goal=2, better="lower", detail=detail)

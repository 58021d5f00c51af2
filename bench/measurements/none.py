"""How much dearer the truth is that nothing is free, in a fleet of 10,000 proxies that are all leased out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from bench.calls import acquire, give_back
from bench.confidence import Bound, converge
from bench.http import Connection, expect
from bench.results import Result
from bench.scale import Scale
from bench.stage import Stage

BOUND = Bound(3, "lower")


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    wanted = acquire(target="example.com")
    grants, refusals = [], []
    with stage.web("leased") as free, stage.web("full") as full:
        granting, refusing = Connection(free), Connection(full)

        def block() -> Mapping[str, float]:
            for _ in range(scale.calls):
                answer, seconds = granting.timed(wanted)
                give_back(granting, answer)
                grants.append(seconds)
                answer, seconds = refusing.timed(wanted)
                expect(answer, b"409")
                refusals.append(seconds)
            return {"none": median(refusals[-scale.calls :]) / median(grants[-scale.calls :])}

        block()
        ratio = converge(block, {"none": BOUND}, least=scale.least, most=scale.most)["none"]
        granting.close()
        refusing.close()
    detail = (
        f"{median(refusals) * 1e3:.2f} ms against {median(grants) * 1e3:.2f} ms; "
        "with the count of each cause and Retry-After"
    )
    yield Result.timed("none, full fleet / grant", ratio, BOUND, goal=2, detail=detail)

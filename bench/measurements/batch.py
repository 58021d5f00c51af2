"""Fifty leases by one call against fifty calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from bench.calls import acquire, give_back, lease_ids
from bench.confidence import Bound, converge
from bench.http import Connection, Refused
from bench.results import Result
from bench.scale import Scale
from bench.stage import Stage

COUNT = 50
BOUND = Bound(5, "higher")
TURNS, SINGLES = 3, 5
"""Batches of a block, and single leases beside each."""


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    one, many = acquire(target="example.com"), acquire(target="example.com", count=COUNT)
    singles, batches = [], []
    with stage.web("large") as address:
        connection = Connection(address)

        def block() -> Mapping[str, float]:
            for _ in range(TURNS):
                answer, seconds = connection.timed(many)
                if len(lease_ids(answer)) != COUNT:
                    raise Refused(answer.decode())
                give_back(connection, answer)
                batches.append(seconds / COUNT)
                for _ in range(SINGLES):
                    answer, seconds = connection.timed(one)
                    give_back(connection, answer)
                    singles.append(seconds)
            return {"batch": median(singles[-TURNS * SINGLES :]) / median(batches[-TURNS:])}

        block()
        ratio = converge(block, {"batch": BOUND}, least=scale.least, most=scale.most)["batch"]
        connection.close()
    detail = f"{median(singles) * 1e6:.0f} us against {median(batches) * 1e6:.0f} us a lease, 10,000 proxies"
    yield Result.timed(f"a lease alone / in {COUNT}", ratio, BOUND, goal=8, detail=detail)

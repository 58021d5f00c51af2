"""Fifty leases by one call against fifty calls."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.calls import acquire, give_back, lease_ids
from bench.http import Connection, Refused
from bench.results import Result
from bench.scale import Scale
from bench.stage import Stage

COUNT = 50


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    one, many = acquire(target="example.com"), acquire(target="example.com", count=COUNT)
    singles, batches = [], []
    with stage.web("large") as address:
        connection = Connection(address)
        for _ in range(max(scale.samples // 20, 20)):
            answer, seconds = connection.timed(many)
            if len(lease_ids(answer)) != COUNT:
                raise Refused(answer.decode())
            give_back(connection, answer)
            batches.append(seconds / COUNT)
            for _ in range(5):
                answer, seconds = connection.timed(one)
                give_back(connection, answer)
                singles.append(seconds)
        connection.close()
    single, batched = median(singles), median(batches)
    detail = f"{single * 1e6:.0f} us against {batched * 1e6:.0f} us a lease, 10,000 proxies"
    yield Result(f"a lease alone / in {COUNT}", single / batched, gate=5, goal=8, better="higher", detail=detail)

"""A lease and its release, against a view that does nothing: authenticated, on a server that has no time left."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.calls import lease_pairs, noop_pairs
from bench.http import saturate
from bench.results import Result
from bench.scale import Scale
from bench.stage import Stage

CONNECTIONS = 16


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    ratios, leases, noops, costs = [], [], [], []
    with stage.web("large") as address:
        for warm_up in (lease_pairs, noop_pairs):
            saturate(address, warm_up, connections=CONNECTIONS, seconds=scale.seconds)
        for _ in range(scale.rounds):
            lease = saturate(address, lease_pairs, connections=CONNECTIONS, seconds=scale.seconds)
            noop = saturate(address, noop_pairs, connections=CONNECTIONS, seconds=scale.seconds)
            ratios.append(lease.per_second / noop.per_second)
            leases.append(lease.per_second / 2)
            noops.append(noop.per_second / 2)
            costs += [lease.client_microseconds, noop.client_microseconds]
    detail = (
        f"{median(leases):.0f} lease pairs/s, {median(noops):.0f} no-op pairs/s, 10,000 proxies, "
        f"{CONNECTIONS} connections; rounds {min(ratios):.2f} to {max(ratios):.2f}; "
        f"the client's share {median(costs):.0f} us a call"
    )
    yield Result("pair / no-op pair", median(ratios), gate=0.30, goal=0.40, better="higher", detail=detail)

"""A lease and its release, against a view that does nothing: authenticated, on a server that has no time left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from bench.calls import lease_pairs, noop_pairs
from bench.confidence import Bound, converge
from bench.http import saturate
from bench.results import Result
from bench.scale import Scale
from bench.stage import Stage

CONNECTIONS = 16
BOUND = Bound(0.30, "higher")


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    leases, noops, costs = [], [], []
    with stage.web("large") as address:

        def block() -> Mapping[str, float]:
            """Each side first and last once, so that what changes meanwhile favours neither."""
            rates: dict[str, float] = {"lease": 0, "noop": 0}
            for side in ("lease", "noop", "noop", "lease"):
                script = lease_pairs if side == "lease" else noop_pairs
                rate = saturate(address, script, connections=CONNECTIONS, seconds=scale.seconds)
                rates[side] += rate.per_second / 2
                costs.append(rate.client_microseconds)
            leases.append(rates["lease"] / 2)
            noops.append(rates["noop"] / 2)
            return {"pair": rates["lease"] / rates["noop"]}

        block()  # warms both up
        ratio = converge(block, {"pair": BOUND}, least=scale.least, most=scale.most)["pair"]
    detail = (
        f"{median(leases):.0f} lease pairs/s, {median(noops):.0f} no-op pairs/s, 10,000 proxies, "
        f"{CONNECTIONS} connections; the client's share {median(costs):.0f} us a call"
    )
    yield Result.timed("pair / no-op pair", ratio, BOUND, goal=0.40, detail=detail)

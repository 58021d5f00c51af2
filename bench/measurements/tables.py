"""What many leases leave behind: the counters must not grow, and each must have been changed in place."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from bench.calls import lease_pairs
from bench.confidence import Bound
from bench.http import saturate
from bench.results import Result
from bench.scale import Scale
from bench.stage import Stage

CONNECTIONS = 16
TURN_SECONDS = 5
_STATISTICS = """
select pg_total_relation_size('leasing_proxyload'), n_tup_upd, n_tup_hot_upd
from pg_stat_user_tables where relname = 'leasing_proxyload'
"""


def measure(stage: Stage, scale: Scale) -> Iterator[Result]:
    with stage.web("small") as address, stage.database("small") as database:
        saturate(address, lease_pairs, connections=CONNECTIONS, seconds=TURN_SECONDS)
        size, updates, hot = _statistics(database)
        done = 0.0
        while done < scale.pairs:
            done += (
                saturate(address, lease_pairs, connections=CONNECTIONS, seconds=TURN_SECONDS).per_second
                * TURN_SECONDS
                / 2
            )
        size_after, updates_after, hot_after = _statistics(database)
    share = (hot_after - hot) / (updates_after - updates)
    pairs = f"{done:,.0f} pairs on 100 proxies"
    yield Result.counted(
        "load table, after / before",
        size_after / size,
        Bound(1.5, "lower"),
        goal=1,
        detail=f"{size_after:,} against {size:,} bytes, {pairs}",
    )
    yield Result.counted(
        "HOT updates of the load table",
        share,
        Bound(0.98, "higher"),
        goal=0.99,
        detail=f"{hot_after - hot:,} of {updates_after - updates:,}",
    )


def _statistics(database: psycopg.Connection) -> tuple[int, int, int]:
    # A backend hands its counts in about a second after the work they tell of; ours has none of its own to add.
    database.execute("select pg_stat_clear_snapshot()")
    row = database.execute(_STATISTICS).fetchone()
    assert row is not None
    size, updates, hot = row
    return size, updates, hot

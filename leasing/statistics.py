"""What leasing counts for people: now, and by the minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from leasing.ids import first_uuid7

_LATE = timedelta(minutes=10)
"""A lease whose request was repeated was named at the first try, so its id may be older than the lease."""


@dataclass(frozen=True, slots=True)
class Totals:
    active: int
    """Leases that are out and have not expired."""
    capacity: int
    """How many may be out at a time, of the proxies that can be leased now."""
    cooling: int
    """Pairs of a proxy and a target that it rests for."""


@dataclass(frozen=True, slots=True)
class Minute:
    leases: int = 0
    """Granted in it."""
    reports_ok: int = 0
    reports_failed: int = 0
    """With any result but ok."""


# Leases that are out are counted from the narrow rows: expired ones are swept within a second.
_TOTALS = """
select coalesce(sum(active), 0), coalesce(sum(max_leases) filter (where leasable), 0),
  (select count(*) from leasing_cooldown where until > %(now)s)
from leasing_proxyload
"""

# Both tables are found by their ids, which grow with time.
_BY_MINUTE = """
with granted as (
  select created_at from leasing_lease where id >= %(first)s
  union all
  select created_at from leasing_endedlease where id >= %(first)s
), happened as (
  select date_trunc('minute', created_at) as minute, 1 as leases, 0 as ok, 0 as failed from granted
  where created_at >= %(since)s and created_at < %(until)s
  union all
  select date_trunc('minute', at), 0, (result = 'ok')::int, (result <> 'ok')::int from leasing_report
  where at >= %(since)s and at < %(until)s
)
select minute, sum(leases), sum(ok), sum(failed) from happened group by minute
"""


def totals(now: datetime) -> Totals:
    with connection.cursor() as cursor:
        cursor.execute(_TOTALS, {"now": now})
        return Totals(*cursor.fetchone())


def by_minute(since: datetime, until: datetime) -> Mapping[datetime, Minute]:
    """Minutes from ``since`` to before ``until`` in which anything happened."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_MINUTE, {"since": since, "until": until, "first": first_uuid7(since - _LATE)})
        return {minute: Minute(*counts) for minute, *counts in cursor.fetchall()}

"""Deletes what is old in bounded steps: each is short, locks a few rows, and waits for nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Model

from proxyfleet.fleet.limits import TURN

BATCH = 2_000
"""Rows that one statement deletes: some ten milliseconds of work."""

# Each step begins where the last one ended: the index still has the entries of what was deleted before. A row that
# changed meanwhile is looked at again when it is locked, and one that somebody else holds is left for another time.
_DELETE = """
with doomed as materialized (
  select id, {column} as age from {table}
  where {column} < %(before)s and {column} >= %(since)s::timestamptz
  order by {column} limit {batch} for update skip locked
), deleted as (
  delete from {table} pruned using doomed where pruned.id = doomed.id
)
select count(*), max(age) from doomed
"""


def turn() -> Callable[[], bool]:
    """Whether the turn that begins now goes on."""
    ends = time.monotonic() + TURN.total_seconds()
    return lambda: time.monotonic() < ends


def delete_before(before: datetime, model: type[Model], column: str, *, has_time: Callable[[], bool]) -> int:
    """Delete the rows of ``model`` whose ``column``, which must have an index, is earlier; returns how many.

    Not for models that others refer to: there are no cascades and no signals.
    """
    statement = _DELETE.format(table=model._meta.db_table, column=column, batch=BATCH)
    since: Any = "-infinity"
    total: int = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(statement, {"before": before, "since": since})
            found, newest = cursor.fetchone()
        total += int(found)
        if found < BATCH or not has_time():
            return total
        since = newest

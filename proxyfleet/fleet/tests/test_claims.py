"""Claims: whose turn it is, and what it costs to find out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from proxyfleet.fleet import claims
from proxyfleet.fleet.models import Proxy

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOLD = timedelta(seconds=60)
CONFIGURED = frozenset({"here"})


def due(name: str, seconds: int, **columns: object) -> Proxy:
    """A proxy that has been due for so long."""
    return Proxy.objects.create(
        name=name, **({"provider": "here", "next_reconcile_at": NOW - timedelta(seconds=seconds)} | columns)
    )


def turns(entry: str = "here") -> list[str]:
    names = []
    while held := claims.claim_next(entry, CONFIGURED, NOW, limit=100, hold_for=HOLD):
        names.append(held.proxy.name)
    return names


def test_the_longest_due_comes_first_and_before_it_one_whose_run_died() -> None:
    dead = {"claim_token": uuid4(), "claim_expires_at": NOW, "next_reconcile_at": None}
    alive = {"claim_token": uuid4(), "claim_expires_at": NOW + timedelta(seconds=1)}
    due("second", 5)
    due("first", 9)
    due("later", -1)
    due("at-rest", 0, next_reconcile_at=None)
    due("dead", 0, **dead)
    due("alive", 99, **alive)
    due("elsewhere", 99, provider="gone")
    assert turns() == ["dead", "first", "second"]
    assert turns("external") == ["elsewhere"]


@pytest.mark.parametrize("entry", ["here", "external"])
def test_no_claim_reads_the_whole_table(entry: str) -> None:
    due("one", 1)
    due("other", 1, provider="gone")
    with CaptureQueriesContext(connection) as queries:
        assert claims.claim_next(entry, CONFIGURED, NOW, limit=100, hold_for=HOLD)
    statement = next(query["sql"] for query in queries if query["sql"].lstrip().startswith("UPDATE"))
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {statement}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Seq Scan" not in plan, plan

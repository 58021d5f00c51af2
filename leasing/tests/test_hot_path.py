"""What a lease may cost: a statement, and its release another, both prepared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from leasing import access, index
from leasing.tests.api import Api
from leasing.tests.fleet import make_proxy
from leasing.tokens import Scope

PAIRS = 10


@pytest.fixture
def api(db: None) -> Api:
    return Api(access.create_token("crawler", [Scope.LEASE], created_by="test", now=timezone.now()).secret)


@pytest.fixture(autouse=True)
def _remembers(monkeypatch: pytest.MonkeyPatch, _knows_at_once: None) -> None:
    """As in production, but for longer than the test takes."""
    monkeypatch.setattr(index, "index", index.FleetIndex(max_age=3600))
    monkeypatch.setattr(access, "tokens", access.KnownTokens(remembered=timedelta(hours=1)))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All that go to the database, whether by Django's cursors or by our own."""
    seen: list[str] = []
    execute: Callable[..., Any] = psycopg.Cursor.execute

    def note(self: psycopg.Cursor, query: Any, *args: Any, **options: Any) -> Any:
        seen.append(str(query))
        return execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", note)
    return seen


def _pair(api: Api, **wish: Any) -> None:
    taken = api.post("/v1/leases", wish)
    assert taken.status == 201
    assert api.delete(f"/v1/leases/{taken.body['leaseID']}").status == 204


@pytest.mark.parametrize("wish", [{}, {"target": "example.com", "selector": {"geo": "eu"}, "ttlSeconds": 60}])
def test_a_lease_and_its_release_are_a_statement_each(api: Api, statements: list[str], wish: dict[str, Any]) -> None:
    make_proxy("p", attributes={"geo": "eu"})
    _pair(api, **wish)
    statements.clear()
    _pair(api, **wish)
    assert len(statements) == 2, statements


def test_both_are_prepared(api: Api) -> None:
    make_proxy("p")
    with connection.cursor() as cursor:
        cursor.execute("deallocate all")
        for _ in range(PAIRS):
            _pair(api)
        cursor.execute(
            """
            select name from pg_prepared_statements
            where (statement like %s or statement like %s) and generic_plans + custom_plans = %s
            """,
            ["%insert into leasing_lease %", "%insert into leasing_endedlease %", PAIRS],
        )
        assert len(cursor.fetchall()) == 2

"""Statements that are asked again and again: the server plans them once for each connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections


def array(items: Iterable[object]) -> str:
    """An array of numbers or UUIDs as a parameter: as text, which takes a tenth of the time of a list."""
    return f"{{{','.join(map(str, items))}}}"


def fetch(query: str, params: Mapping[str, Any] | None = None, *, prepare: bool = True) -> list[tuple[Any, ...]]:
    """All rows of a statement, on Django's connection and in its transaction, if there is one.

    It is prepared, unless told not to: what is put together anew for each request would crowd out the others.

    Its parameters are bound by the server, hence a cast beside each whose type doesn't show; texts are the cheapest.
    Errors are Django's.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    connection.ensure_connection()
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(query, params, prepare=prepare)
        return cursor.fetchall()

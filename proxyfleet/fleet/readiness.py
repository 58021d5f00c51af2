"""What every process needs for its work: database, migrations and broker."""

from __future__ import annotations

from collections.abc import Collection

from celery import current_app
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor
from kombu.exceptions import OperationalError


def problems(*, exclude: Collection[str] = ()) -> dict[str, str]:
    """What can't be used, and why; empty when all can. Those named in ``exclude`` are not asked."""
    return {name: problem for name, check in _CHECKS.items() if name not in exclude and (problem := check())}


def _database() -> str:
    try:
        connection = connections[DEFAULT_DB_ALIAS]
        executor = MigrationExecutor(connection)
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return "can't be reached"
    return f"{len(pending)} migrations are pending" if pending else ""


def _broker() -> str:
    try:
        with current_app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, timeout=2)
    except (OperationalError, OSError):
        return "can't be reached"
    return ""


_CHECKS = {"database": _database, "broker": _broker}

"""Checks for an orchestrator: is this process alive, and can it do its work?"""

from __future__ import annotations

from celery import current_app
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from kombu.exceptions import OperationalError


def healthz(_request: HttpRequest) -> HttpResponse:
    """The process answers; says nothing about what it depends on."""
    return JsonResponse({"status": "ok"})


def readyz(_request: HttpRequest) -> HttpResponse:
    """200 when database, migrations and broker are usable, else 503 that names what is not."""
    problems = {name: problem for name, check in _CHECKS.items() if (problem := check())}
    return JsonResponse({"status": "unready" if problems else "ok", **problems}, status=503 if problems else 200)


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

"""Django's ``migrate``, by one process at a time: every pod of a new version begins with it."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate
from django.db import connections

from proxyfleet.postgres.locks import Lock, exclusive


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        """Whoever comes second finds nothing left to do."""
        with exclusive(connections[options["database"]], Lock.MIGRATE):
            super().handle(*args, **options)

"""PostgreSQL's advisory locks: one process of many does what only one may do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from django.db import DatabaseError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

_OURS = 0x70666C74
"""The first half of the key, so that other programs of the same database can have locks too."""

CONFIRM_SECONDS = 5.0
_KEEPALIVE = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
"""A machine that vanished without a word loses its lock within 20 seconds, by the server's judgement."""


class Lock(IntEnum):
    """What is done by one at a time."""

    BEAT = 1
    MIGRATE = 2


class SessionLock:
    """Held by a session of its own, with which it ends: at once when the process dies."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._session: BaseDatabaseWrapper | None = None
        self._confirmed_at = 0.0

    def is_ours(self) -> bool:
        """Take it if nobody has it. While it is ours the server is asked every five seconds whether it still is."""
        if self._session is not None and time.monotonic() < self._confirmed_at + CONFIRM_SECONDS:
            return True
        try:
            ours = self._confirm() if self._session is not None else self._take()
        except DatabaseError:
            ours = False
        if not ours:
            self.give_up()
        self._confirmed_at = time.monotonic()
        return ours

    def give_up(self) -> None:
        """Let another have it. Without a session nothing is done."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _take(self) -> bool:
        self._session = connection.copy()
        self._session.settings_dict["OPTIONS"]["connect_timeout"] = int(CONFIRM_SECONDS)
        with self._session.cursor() as cursor:
            cursor.execute(_KEEPALIVE)
        return _try(self._session, self._lock)

    def _confirm(self) -> bool:
        assert self._session is not None
        with self._session.cursor() as cursor:
            cursor.execute("SELECT 1")
        return True


@contextmanager
def exclusive(database: BaseDatabaseWrapper, lock: Lock) -> Iterator[None]:
    """Wait until nobody else holds it, and hold it while the block runs.

    Asked again and again: a session that waits inside one statement would hold up CREATE INDEX CONCURRENTLY, which the
    holder may be at.
    """
    while not _try(database, lock):
        time.sleep(0.2)
    try:
        yield
    finally:
        with database.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [_OURS, lock])


def _try(database: BaseDatabaseWrapper, lock: Lock) -> bool:
    with database.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [_OURS, lock])
        found: tuple[bool] = cursor.fetchone()
    return found[0]

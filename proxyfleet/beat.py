"""Celery's beat, of which any number may run: one sends, and another takes over as soon as it is gone."""

from __future__ import annotations

import logging
from typing import Any

from celery.beat import PersistentScheduler

from proxyfleet import alive
from proxyfleet.postgres.locks import Lock, SessionLock

logger = logging.getLogger(__name__)

STANDBY_SECONDS = 1.0


class Scheduler(PersistentScheduler):
    """Sends while it holds the lock in PostgreSQL, without which no message could be acted on anyway.

    What a new one finds due it sends at once. Two that send for a moment do no harm: claims let one message act.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._turn = SessionLock(Lock.BEAT)
        self._sends = False
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Seconds until the next one."""
        alive.tell()
        sends = self._turn.is_ours()
        if sends is not self._sends:
            logger.warning("This beat sends from now on" if sends else "This beat sends no more: its lock is lost")
            self._sends = sends
        if not sends:
            return STANDBY_SECONDS
        seconds: float = super().tick(*args, **kwargs)
        return seconds

    def close(self) -> None:
        super().close()
        self._turn.give_up()

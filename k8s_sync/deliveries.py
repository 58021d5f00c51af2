"""Hands each object that changed to its handler, one at a time, and again until the handler is through."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from django.db import Error as DatabaseTrouble
from django.db import close_old_connections, connection

from k8s_sync.client import Object
from k8s_sync.errors import ClusterError
from k8s_sync.store import ObjectStore

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
RESYNC_SECONDS = 300.0
_EVERYTHING = ""
"""Stands where a key does: find out all there is, and owe it."""


class Deliveries:
    """What is owed to the handler of one kind. ``run`` in a thread of its own; everything else from any thread.

    The handler gets a key of the store and its newest object, or None when it is gone. However often an object changes
    meanwhile, it is delivered once, as it is by then. One whose handler fails stays owed and is tried again, ever more
    rarely; the others don't wait. After ``resync`` and every ``resync_seconds`` everything is owed anew: what the store
    holds and what ``known`` returns, the keys that the handler remembers.
    """

    def __init__(
        self,
        store: ObjectStore,
        handle: Callable[[str, Object | None], None],
        *,
        known: Callable[[], Iterable[str]],
        resync_seconds: float = RESYNC_SECONDS,
    ) -> None:
        self._store = store
        self._handle = handle
        self._known = known
        self._resync_seconds = resync_seconds
        self._resync_at = math.inf
        self._due: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []
        """A heap of all that was ever put in ``_due``; what is no longer so is skipped."""
        self._in_hand: str | None = None
        self._failures: dict[str, int] = {}
        self._changed = threading.Condition()
        self._is_stopped = False

    @property
    def is_idle(self) -> bool:
        """Everything known has been handled, without a failure."""
        with self._changed:
            return self._owes_nothing()

    def owes(self, key: str) -> bool:
        """Whether the handler may not have seen this object as it is now, or is at it."""
        with self._changed:
            return any(owed in self._due or owed == self._in_hand for owed in (key, _EVERYTHING))

    def wait_until_idle(self, timeout: float) -> bool:
        """False when ``timeout`` (seconds) came first."""
        with self._changed:
            return self._changed.wait_for(self._owes_nothing, timeout)

    def add(self, key: str) -> None:
        """The object came, changed or went: deliver it at once."""
        with self._changed:
            self._failures.pop(key, None)
            self._owe(key, time.monotonic())

    def resync(self) -> None:
        """Deliver everything, now and every ``resync_seconds`` from now on."""
        with self._changed:
            self._owe_everything(time.monotonic())

    def run(self) -> None:
        """Returns after ``stop``, once the handler has returned."""
        try:
            while (key := self._take()) is not None:
                self._deliver(key)
        finally:
            connection.close()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _owes_nothing(self) -> bool:
        return not self._due and self._in_hand is None

    def _owe(self, key: str, at: float) -> None:
        self._due[key] = at
        heappush(self._order, (at, key))
        self._changed.notify_all()

    def _owe_everything(self, now: float) -> None:
        self._resync_at = now + self._resync_seconds
        self._owe(_EVERYTHING, now)

    def _take(self) -> str | None:
        """Wait for something to be due, and take what has been so for longest. None after ``stop``."""
        with self._changed:
            while not self._is_stopped:
                now = time.monotonic()
                if now >= self._resync_at:
                    self._owe_everything(now)
                while self._order and self._due.get(self._order[0][1]) != self._order[0][0]:
                    heappop(self._order)
                if self._order and self._order[0][0] <= now:
                    self._in_hand = heappop(self._order)[1]
                    del self._due[self._in_hand]
                    return self._in_hand
                wake_at = min(self._resync_at, self._order[0][0] if self._order else math.inf)
                self._changed.wait(None if wake_at == math.inf else wake_at - now)
        return None

    def _deliver(self, key: str) -> None:
        retry_in = None
        try:
            close_old_connections()
            if key == _EVERYTHING:
                for each in {*self._store.keys(), *self._known()}:
                    self.add(each)
            else:
                self._handle(key, self._store.get(key))
        except (ClusterError, DatabaseTrouble) as error:
            retry_in = self._backoff(key)
            logger.warning("%s could not be delivered; the next try is in %.0f s: %s", self._name(key), retry_in, error)
        except Exception:
            # A bug that one object meets must not keep the others from their handler.
            retry_in = self._backoff(key)
            logger.exception("%s could not be delivered; the next try is in %.0f s", self._name(key), retry_in)
        with self._changed:
            self._in_hand = None
            if retry_in is None:
                self._failures.pop(key, None)
            elif key not in self._due:
                self._owe(key, time.monotonic() + retry_in)
            self._changed.notify_all()

    def _name(self, key: str) -> str:
        """For people, who know no uids."""
        if key == _EVERYTHING:
            return "A resync"
        obj = self._store.get(key)
        return key if obj is None else f"{obj['metadata'].get('namespace')}/{obj['metadata']['name']}"

    def _backoff(self, key: str) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        longest = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** (failures - 1))
        return random.uniform(longest / 2, longest)

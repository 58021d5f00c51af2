"""Threads that begin and end together. One that fails unexpectedly is the failure of all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import Error as DatabaseTrouble
from django.db import close_old_connections, connection

from k8s_sync.errors import ClusterError

logger = logging.getLogger(__name__)

STOP_SECONDS = 30.0
"""Longer than any call takes that may be under way."""


class Crew:
    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._stops: list[Callable[[], None]] = []
        self._stopping = threading.Event()
        self._failure: Exception | None = None

    def add(self, name: str, run: Callable[[], None], *, stop: Callable[[], None] | None = None) -> None:
        """``run`` must return soon after ``stop``, which may be called from any thread."""
        self._threads.append(threading.Thread(target=self._guard, args=(run,), name=name, daemon=True))
        if stop is not None:
            self._stops.append(stop)

    def every(self, seconds: float, name: str, work: Callable[[], None]) -> None:
        """``work`` again and again; a round that the cluster or the database breaks off is tried again."""
        self.add(name, lambda: self._repeat(seconds, name, work))

    def is_stopping(self, *, wait: float) -> bool:
        """Known at the latest after ``wait`` seconds."""
        return self._stopping.wait(wait)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns when all threads have ended. Raises RuntimeError when one does not."""
        self._stopping.set()
        for stop in self._stops:
            stop()
        for thread in self._threads:
            thread.join(STOP_SECONDS)
            if thread.is_alive():
                raise RuntimeError(f"the thread {thread.name} did not end within {STOP_SECONDS:.0f} s")

    def check(self) -> None:
        """Raises what a thread failed of; the others are of no use without it."""
        if self._failure is not None:
            raise self._failure

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:  # noqa: BLE001  raised again by whoever checks
            self._failure = self._failure or error
        finally:
            connection.close()

    def _repeat(self, seconds: float, name: str, work: Callable[[], None]) -> None:
        while not self._stopping.wait(seconds):
            close_old_connections()
            try:
                work()
            except (ClusterError, DatabaseTrouble) as error:
                logger.warning("%s: the next try is in %.0f s: %s", name, seconds, error)

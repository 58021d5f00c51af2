"""Probes that run in a thread of their own, while the caller writes their results: neither delays the other."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Generic, Self

from health.probes import probe
from health.results import Key, ProbeRequest, ProbeResult

PATIENCE_SECONDS = 0.5
"""A probe that takes longer waits for a peer, and gives its place among the active ones to the next."""


class Probes(Generic[Key]):
    """Runs what it is given, in order. A context; its end cancels what still runs.

    At most ``active`` probes are begun or answered at a time, so that a crowd delays no probe beyond its deadline, and
    at most ``open_at_most`` wait for their peers: thousands of silent proxies hold up none that answers.
    """

    def __init__(self, tls: ssl.SSLContext, *, active: int, open_at_most: int) -> None:
        self._tls = tls
        self._active = active
        self._open_at_most = max(1, open_at_most)
        self._waiting: deque[ProbeRequest[Key]] = deque()
        self._arrived: deque[ProbeResult[Key]] = deque()
        self._outstanding = 0
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="probes", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def start(self, requests: Iterable[ProbeRequest[Key]]) -> None:
        """Probe these as soon as there is a place. Raises as `results` does."""
        with self._lock:
            self._waiting.extend(added := list(requests))
            self._outstanding += len(added)
            if added:
                self._idle.clear()
        with contextlib.suppress(RuntimeError):  # `results` says why the loop has ended
            self._loop.call_soon_threadsafe(self._news.set)

    def results(self, *, wait_seconds: float) -> list[ProbeResult[Key]]:
        """What has arrived by then, or sooner, if nothing is left to wait for.

        Raises an ExceptionGroup of OSError when this machine runs short (see `probe`).
        """
        self._idle.wait(wait_seconds)
        if self._error is not None:
            raise self._error
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def withdraw(self) -> list[Key]:
        """Take back what was not begun."""
        with self._lock:
            keys = [request.key for request in self._waiting]
            self._waiting.clear()
            self._finish(len(keys))
        return keys

    def _finish(self, count: int) -> None:
        self._outstanding -= count
        if not self._outstanding:
            self._idle.set()

    def _next(self) -> ProbeRequest[Key] | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _work(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._news = asyncio.Event()
            self._main = self._loop.create_task(self._serve())
            self._started.set()
            try:
                self._loop.run_until_complete(self._main)
            except asyncio.CancelledError:
                pass
            except BaseException as error:  # noqa: BLE001  the caller's thread raises it
                self._error = error
                self._idle.set()

    async def _serve(self) -> None:
        active, places = asyncio.Semaphore(self._active), asyncio.Semaphore(self._open_at_most)
        async with asyncio.TaskGroup() as group:
            while True:
                await places.acquire()
                await active.acquire()
                while (request := self._next()) is None:
                    self._news.clear()
                    await self._news.wait()
                group.create_task(self._probe(request, active, places))

    async def _probe(self, request: ProbeRequest[Key], active: asyncio.Semaphore, places: asyncio.Semaphore) -> None:
        among_active = _Place(active)
        timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, among_active.leave)
        try:
            self._arrived.append(await probe(request, self._tls))
            with self._lock:
                self._finish(1)
        finally:
            timer.cancel()
            among_active.leave()
            places.release()


class _Place:
    """A place that was taken, to be left once however often that is asked."""

    def __init__(self, semaphore: asyncio.Semaphore) -> None:
        self._semaphore: asyncio.Semaphore | None = semaphore

    def leave(self) -> None:
        if self._semaphore is not None:
            self._semaphore.release()
            self._semaphore = None

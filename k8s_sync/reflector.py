"""Keeps a store equal to what the cluster holds of one kind: list, then watch from there, for ever."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from k8s_sync.client import SILENCE_SECONDS, ApiServer, Object, Watch
from k8s_sync.errors import ClusterError, Gone
from k8s_sync.kinds import Kind
from k8s_sync.store import ObjectStore, uid_of, version_of
from proxyfleet.observability import metrics

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 30.0
FAILURES_UNTIL_LISTED = 8
"""A position that fails more often in a row may lie ahead of a server that was restored from a backup."""

MOMENT_SECONDS = 15.0
"""A watch that was broken for no longer is no trouble: servers end watches, and start anew."""


class Reflector:
    """One list and one watch. ``run`` in a thread of its own; everything else from any thread.

    ``changed`` is called with the key of an object that came, changed or went, ``listed`` after a list, which tells
    what there is and not what changed: both after the store knows, and neither may block.
    """

    def __init__(
        self,
        api: ApiServer,
        kind: Kind,
        *,
        changed: Callable[[str], None],
        listed: Callable[[], None],
        namespace: str | None = None,
        labels: str = "",
        key: Callable[[Object], str] = uid_of,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self.store = ObjectStore(key)
        self._api = api
        self._kind = kind
        self._changed = changed
        self._listed = listed
        self._namespace = namespace
        self._labels = labels
        self._silence_seconds = silence_seconds
        self._has_listed = threading.Event()
        self._stopped = threading.Event()
        self._watch: Watch | None = None
        self._position = ""
        self._is_connected = False
        self._failures = 0
        self._trouble = ""
        self._connected_at = time.monotonic()

    @property
    def is_current(self) -> bool:
        """The list is done and the watch alive: the store shows what the cluster holds, but for what is on its way."""
        return self._has_listed.is_set() and self._is_connected

    @property
    def problem(self) -> str:
        """Why nothing has been heard for more than a moment; empty when something could be."""
        is_long = time.monotonic() > self._connected_at + MOMENT_SECONDS
        return f"{self._kind.plural} can't be followed: {self._trouble}" if self._trouble and is_long else ""

    def wait_until_listed(self, timeout: float) -> bool:
        """Wait for the end of the first list; False when ``timeout`` (seconds) came first."""
        return self._has_listed.wait(timeout)

    def run(self) -> None:
        """Returns after ``stop``."""
        while not self._stopped.is_set():
            try:
                if self._position:
                    self._check_position()
                else:
                    self._list()
                self._follow()
            except Gone as error:
                logger.info("%s: listing again: %s", self._kind.plural, error)
                self._position = ""
            except ClusterError as error:
                self._trouble = str(error)
                if not self._stopped.is_set():
                    logger.warning("%s: %s", self._kind.plural, error)
                if self._failures >= FAILURES_UNTIL_LISTED:
                    self._position = ""
            if self._is_connected:
                self._connected_at = time.monotonic()
            self._is_connected = False
            self._stopped.wait(self._delay())

    def stop(self) -> None:
        self._stopped.set()
        if (watch := self._watch) is not None:
            watch.stop()

    def _list(self) -> None:
        listing = self._api.list(self._kind, namespace=self._namespace, labels=self._labels)
        self.store.replace(listing.objects)
        self._listed()
        self._position = listing.resource_version
        self._has_listed.set()

    def _check_position(self) -> None:
        """Raises Gone when it lies ahead of the server, which was restored from a backup: a watch from there would hear
        nothing until the server has come as far again.
        """
        newest = self._api.newest_version(self._kind, namespace=self._namespace, labels=self._labels)
        if newest < int(self._position):
            raise Gone(f"the cluster is at the resourceVersion {newest}, and was at {self._position} before")

    def _follow(self) -> None:
        opened = self._api.watch(
            self._kind,
            resource_version=self._position,
            namespace=self._namespace,
            labels=self._labels,
            silence_seconds=self._silence_seconds,
        )
        with opened as watch:
            self._watch = watch
            self._is_connected = True
            self._trouble = ""
            # Whoever stopped before it was there could not wake it.
            if self._stopped.is_set():
                return
            for event in watch:
                self._take(event["type"], event["object"])
                self._failures = 0

    def _take(self, event: str, obj: Object) -> None:
        version = version_of(obj)
        if event == "BOOKMARK":
            self._position = str(max(int(self._position), version))
            return
        metrics.sync_events.labels(self._kind.name).inc()
        key = self.store.key(obj)
        known = self.store.get(key)
        if version <= int(self._position):
            self._settle(event, known, version)
            return
        if event == "DELETED":
            self.store.remove(key)
        else:
            self.store.put(obj)
        self._position = str(version)
        self._changed(key)

    def _settle(self, event: str, known: Object | None, version: int) -> None:
        """An event of the past: dropped when the store knows better, else settled by a list."""
        is_known = known is None if event == "DELETED" else known is not None and version_of(known) >= version
        if not is_known:
            raise Gone(f"an event of the resourceVersion {version} came after {self._position}")

    def _delay(self) -> float:
        """Seconds until the next try: a moment after a watch that told something, longer with each failure in a row."""
        self._failures += 1
        longest = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2 ** (self._failures - 1))
        return random.uniform(longest / 2, longest)

"""Renews the leases of a fleet in one background thread."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from proxyfleet_client import calls
from proxyfleet_client.errors import Refused, Unreachable

if TYPE_CHECKING:
    from proxyfleet_client.synchronous import Fleet, Lease


class Renewer:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._due: dict[Lease, float] = {}
        """By the monotonic clock."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, lease: Lease) -> None:
        with self._changed:
            self._due[lease] = monotonic() + lease.renewal_pause
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="proxyfleet renewals", daemon=True)
                self._thread.start()
            self._changed.notify()

    def forget(self, lease: Lease) -> None:
        with self._changed:
            self._due.pop(lease, None)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (lease := self._next()) is not None:
            self._renew(lease)

    def _next(self) -> Lease | None:
        """The lease that is due, once one is; None when there is nothing left to do."""
        with self._changed:
            while not self._closed:
                soonest = min(self._due, key=self._due.__getitem__, default=None)
                if soonest is None:
                    self._changed.wait()
                elif (left := self._due[soonest] - monotonic()) > 0:
                    self._changed.wait(left)
                else:
                    return soonest
        return None

    def _renew(self, lease: Lease) -> None:
        renewal = calls.renew(lease.grant.lease_id, lease.grant.ttl, patience=lease.renewal_pause / 2)
        try:
            self._fleet.call(renewal)
        except (Refused, Unreachable) as problem:
            lease.renewal_failed(problem)
        with self._changed:
            if lease.ended is not None:
                self._due.pop(lease, None)
            elif lease in self._due:
                self._due[lease] = monotonic() + lease.renewal_pause

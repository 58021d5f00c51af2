"""What the fleet needs of the layers above it, which it may not import; `proxyfleet.composition` fills it in."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol


class LeaseBook(Protocol):
    """The leases of the fleet. Every method joins the caller's transaction and writes only leasing tables."""

    def publish(self, proxy_id: int, *, leasable: bool, max_leases: int) -> None:
        """From the commit on, the proxy is leased (or not), up to ``max_leases`` at a time."""
        ...

    def active(self, proxy_id: int, now: datetime) -> int:
        """Leases that are out and have not expired."""
        ...

    def end_all(self, proxy_id: int, *, cause: str, now: datetime) -> int:
        """End all leases of the proxy, keeping ``cause``; comes after ``publish(leasable=False)``."""
        ...


class Prober(Protocol):
    """The health engine."""

    def probe_soon(self, proxy_ids: Iterable[int]) -> None:
        """Probe these once the transaction commits, without waiting for their slot. A hint: it may be lost."""
        ...


class _Ports:
    leases: LeaseBook
    prober: Prober


ports = _Ports()

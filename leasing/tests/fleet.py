"""Proxies to lease, without the machinery that makes real ones."""

from __future__ import annotations

from typing import Any

from leasing.book import DatabaseLeaseBook
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.phases import Phase, Verdict


def make_proxy(name: str, *, max_leases: int = 1, phase: Phase = Phase.READY, **columns: Any) -> Proxy:
    """A proxy as the fleet leaves it in ``phase``, published to the book."""
    healthy = phase is Phase.READY
    columns = {
        "provider": "east",
        "address": "192.0.2.1",
        "verdict": Verdict.HEALTHY if healthy else "unhealthy",
    } | columns
    proxy = Proxy.objects.create(name=name, max_leases=max_leases, phase=phase, **columns)
    publish(proxy)
    return proxy


def publish(proxy: Proxy) -> None:
    DatabaseLeaseBook().publish(
        proxy.pk, leasable=proxy.is_leasable, max_leases=proxy.max_leases, generation=proxy.generation
    )

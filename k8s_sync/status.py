"""What a Proxy object shows of its row. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxyfleet.fleet.models import Proxy


COUNTS = frozenset({"leases", "targetsCooling"})


def status_of(proxy: Proxy, *, leases: int, targets_cooling: int) -> dict[str, Any]:
    """Every field of the status. None stands for one that is not there: in a merge patch it takes the field away.

    The counts are those of the moment. No status is written for their sake: that would be a write for each lease.
    """
    return {
        "phase": proxy.phase,
        "providerID": proxy.provider_id or None,
        "ip": proxy.address or None,
        "port": proxy.address_port,
        "egressIP": proxy.egress_ip,
        "instanceHash": proxy.instance_hash or None,
        "observedGeneration": proxy.observed_generation or None,
        "conditions": proxy.conditions or None,
        "lastHealthCheckTime": time_text(proxy.health_changed_at),
        "message": proxy.message or None,
        "leases": leases,
        "targetsCooling": targets_cooling,
    }


def shows(shown: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether patching ``shown`` with ``wanted`` would change nothing but counts."""
    return all(shown.get(field) == value for field, value in wanted.items() if field not in COUNTS)


def time_text(at: datetime | None) -> str | None:
    """As metav1.Time: UTC, whole seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ") if at else None

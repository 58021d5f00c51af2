"""What the API answers, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy of the fleet, as it was when it was read."""

    id: str
    """namespace/name"""
    url: str
    """For the proxy setting of an HTTP client; carries user name and password where the proxy asks for them."""
    attributes: Mapping[str, str]
    egress_ip: str | None
    """The address that targets see, where that is known."""

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        return cls(
            id=answer["id"], url=answer["url"] or "", attributes=answer["attributes"], egress_ip=answer["egressIP"]
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease as it was granted."""

    lease_id: str
    proxy: Proxy
    ttl: float
    """Seconds from the grant to its end."""

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        # Both by the API's clock: what this machine's says does not matter.
        granted, ends = (datetime.fromisoformat(answer[moment]) for moment in ("createdAt", "expiresAt"))
        return cls(answer["leaseID"], Proxy.read(answer["proxy"]), (ends - granted).total_seconds())

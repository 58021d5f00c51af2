"""Why leasing says no."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


class InvalidRequest(Exception):
    """What was asked can't be understood. ``errors`` maps each field to its messages."""

    def __init__(self, errors: Mapping[str, list[str]]) -> None:
        self.errors = dict(errors)
        super().__init__(
            "; ".join(f"{field}: {message}" for field, messages in self.errors.items() for message in messages)
        )


class LeaseNotFound(Exception):
    """There is no such lease, and no memory of one."""


class LeaseEnded(Exception):
    """The lease is over."""

    def __init__(self, cause: str, ended_at: datetime) -> None:
        self.cause = cause
        self.ended_at = ended_at
        super().__init__(f"The lease ended at {ended_at:%Y-%m-%d %H:%M:%S} UTC: {cause}.")


class IdempotencyKeyReused(Exception):
    """The key was used before, for something else."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """The matching proxies at a moment when none was to be had. Each is counted under one cause."""

    matching: int
    unhealthy: int
    """Not Ready: unhealthy, failed, or still being made."""
    full: int
    cooling: int
    draining: int
    """On their way out, or cordoned."""
    free_at: datetime | None
    """When the first one becomes free by time alone; none: only a change of the fleet helps."""


class NoProxyAvailable(Exception):
    """No matching proxy had a free slot."""

    def __init__(self, shortage: Shortage) -> None:
        self.shortage = shortage
        super().__init__("No matching proxy had a free slot.")

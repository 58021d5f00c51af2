"""What can go wrong between a crawler and the fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class FleetError(Exception):
    """Base of all that this package raises."""


class Unreachable(FleetError):
    """The API gave no answer, for as long as was waited."""


class Refused(FleetError):
    """The API said no. ``code`` is stable and listed in the API's documentation; ``str()`` is for people."""

    def __init__(self, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = int(problem.get("status", 0))
        self.code = str(problem.get("code", ""))
        self.errors: Mapping[str, list[str]] = problem.get("errors") or {}
        self.retry_after = retry_after
        """Seconds after which it may be otherwise, if the API said so."""
        fields = "; ".join(f"{field}: {', '.join(messages)}" for field, messages in self.errors.items())
        super().__init__(fields or str(problem.get("detail") or problem.get("title") or f"status {self.status}"))


class NoProxyAvailable(Refused):
    """No proxy can be leased now. ``counts`` tells how many match, and why those that do can't be had."""

    def __init__(self, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        super().__init__(problem, retry_after)
        causes = ("matching", "unhealthy", "full", "cooling", "draining")
        self.counts = {cause: int(problem[cause]) for cause in causes if cause in problem}


class LeaseEnded(Refused):
    """The lease is over; ``cause`` tells how it ended."""

    def __init__(self, problem: Mapping[str, Any], retry_after: float | None = None) -> None:
        super().__init__(problem, retry_after)
        self.cause = str(problem.get("cause", ""))


_KINDS: Mapping[str, type[Refused]] = {"no_proxy_available": NoProxyAvailable, "lease_ended": LeaseEnded}


def refusal(problem: Mapping[str, Any], retry_after: float | None) -> Refused:
    """The error for an RFC 9457 problem."""
    return _KINDS.get(str(problem.get("code")), Refused)(problem, retry_after)

"""The phases and verdicts of a proxy, the edges between phases, and every deadline and backoff in one place."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum


class Phase(StrEnum):
    PENDING = "Pending"
    """Wanted; nothing has been asked of a provider yet, or nothing can be."""
    PROVISIONING = "Provisioning"
    """An instance is being made, or is reachable and awaits its first verdict."""
    READY = "Ready"
    """Running, reachable and healthy: the only phase that is leased."""
    UNHEALTHY = "Unhealthy"
    """Running, but the probe through it fails."""
    REPLACING = "Replacing"
    """The instance is obsolete: drained, then deleted; a new one follows under the same name."""
    TERMINATING = "Terminating"
    """Deletion was asked; the instance is drained, then deleted."""
    FAILED = "Failed"
    """The spec can't work, says the provider; latched until the spec changes."""


class Verdict(StrEnum):
    """What consecutive probes say of an instance."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset(
        {
            Phase.PROVISIONING,  # create was asked of the provider
            Phase.READY,  # an External proxy passed its first probe
            Phase.UNHEALTHY,  # an External proxy failed its first probes
            Phase.FAILED,  # the provider refused the very first create
            Phase.TERMINATING,
        }
    ),
    Phase.PROVISIONING: frozenset(
        {
            Phase.READY,  # first verdict: healthy
            Phase.UNHEALTHY,  # first verdict: unhealthy
            Phase.REPLACING,  # the spec changed meanwhile
            Phase.PENDING,  # the create waits for something that is missing: cloud-init, capacity, a provider entry
            Phase.FAILED,  # the provider says that the spec can't work
            Phase.TERMINATING,
        }
    ),
    Phase.READY: frozenset(
        {
            Phase.UNHEALTHY,  # the verdict changed
            Phase.PROVISIONING,  # the instance was lost, stopped or lost its address; another is made
            Phase.PENDING,  # the endpoint of an External proxy changed
            Phase.REPLACING,  # the spec changed
            Phase.FAILED,  # the provider disowns the instance for good
            Phase.TERMINATING,
        }
    ),
    Phase.UNHEALTHY: frozenset(
        {
            Phase.READY,  # the verdict changed
            Phase.PROVISIONING,  # the instance was lost, stopped or lost its address; another is made
            Phase.PENDING,  # the endpoint of an External proxy changed
            Phase.REPLACING,  # the spec changed
            Phase.FAILED,  # the provider disowns the instance for good
            Phase.TERMINATING,
        }
    ),
    Phase.REPLACING: frozenset(
        {
            Phase.PROVISIONING,  # the old instance is gone
            Phase.READY,  # the spec went back to what the instance was made from
            Phase.UNHEALTHY,  # the same, and the instance is unhealthy
            Phase.PENDING,  # the old instance is gone and the new one waits for something that is missing
            Phase.FAILED,  # the provider refused the new instance
            Phase.TERMINATING,
        }
    ),
    Phase.FAILED: frozenset(
        {
            Phase.PENDING,  # the spec changed, and waits for something that is missing
            Phase.PROVISIONING,  # the spec changed
            Phase.REPLACING,  # the spec changed and an instance of the old one exists
            Phase.READY,  # the spec changed in a way that the instance need not be replaced for
            Phase.UNHEALTHY,  # the same, and the instance is unhealthy
            Phase.TERMINATING,
        }
    ),
    Phase.TERMINATING: frozenset(),  # deletion is never taken back; the row goes
}


TRANSIENT_BACKOFF = (timedelta(seconds=2), timedelta(minutes=5))
"""First and longest wait after an error of the road to the backend."""

BLOCKED_BACKOFF = (timedelta(seconds=60), timedelta(minutes=30))
"""First and longest wait for capacity or for an operator."""

UNRESOLVED_RECHECK = timedelta(seconds=60)
"""How often a proxy looks again for a missing provider entry or cloud-init; their return also wakes it."""

DRAIN_POLL = timedelta(seconds=2)
"""How often a draining proxy is asked whether its leases have ended."""

ERROR_GRACE = timedelta(seconds=60)
"""A transient error that lasts longer than this is shown on the proxy."""


def backoff(bounds: tuple[timedelta, timedelta], failures: int, jitter: float) -> timedelta:
    """Exponential wait before try number ``failures`` + 1, spread by ±20 % so that a fleet does not retry in step.

    ``jitter`` is a random number in [0, 1).
    """
    first, longest = bounds
    wait = min(first * 2 ** min(failures - 1, 20), longest) if failures > 0 else first
    return wait * (0.8 + 0.4 * jitter)

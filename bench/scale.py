"""How long a run of the bench may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    rounds: int
    """Turns that each side of a throughput comparison gets."""
    seconds: float
    """Length of such a turn."""
    samples: int
    """Calls of each side of a latency comparison."""
    pairs: int
    """Leases given and taken back to see whether tables grow."""


FULL = Scale(rounds=12, seconds=2.5, samples=2000, pairs=200_000)
QUICK = Scale(rounds=6, seconds=1.5, samples=500, pairs=10_000)

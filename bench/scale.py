"""How long a run of the bench may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    least: int
    """Blocks of each comparison; more where the machine is noisy."""
    most: int
    seconds: float
    """Length of a turn at full load, of which a block has two on each side."""
    calls: int
    """Calls on each side of a block that times them one by one."""
    pairs: int
    """Leases given and taken back to see whether tables grow."""


FULL = Scale(least=30, most=120, seconds=0.75, calls=50, pairs=200_000)
QUICK = Scale(least=9, most=30, seconds=0.5, calls=20, pairs=10_000)

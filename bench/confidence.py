"""When to stop measuring: medians with the interval that they lie in, which a noisy machine makes wide and time narrow.

A block measures each side of a comparison in turn, within a second or two, and gives their ratio: what else the machine
does meanwhile falls on both sides. Blocks are repeated until it is plain on which side of its gate the median lies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Literal

NARROW = 0.05
"""An interval of this share of its median is as good as a number."""
_DOUBT = 0.01
"""Less than the usual: whoever looks again and again is more often fooled than whoever looks once."""


@dataclass(frozen=True, slots=True)
class Bound:
    gate: float
    better: Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Estimate:
    value: float
    """Median of the blocks."""
    low: float
    high: float
    """Between these lies the median of all blocks that there could be, at 99 %."""
    blocks: int

    def is_plain(self, bound: Bound) -> bool:
        beyond = not self.low <= bound.gate <= self.high
        return beyond or self.high - self.low <= NARROW * self.value


def estimate(ratios: Sequence[float]) -> Estimate:
    """The interval is that of the sign test: it assumes nothing of how the noise is distributed."""
    ordered = sorted(ratios)
    count = len(ordered)
    cut = 0
    while cut < count // 2 and 2 * sum(comb(count, below) for below in range(cut + 1)) <= _DOUBT * 2**count:
        cut += 1
    first = max(cut - 1, 0)
    return Estimate(median(ordered), ordered[first], ordered[count - 1 - first], count)


def converge(
    block: Callable[[], Mapping[str, float]], bounds: Mapping[str, Bound], *, least: int, most: int
) -> Mapping[str, Estimate]:
    """Repeat ``block``, whose ratios are named as their ``bounds``, from ``least`` to ``most`` times."""
    seen: dict[str, list[float]] = {name: [] for name in bounds}
    while True:
        for name, ratio in block().items():
            seen[name].append(ratio)
        estimates = {name: estimate(ratios) for name, ratios in seen.items()}
        blocks = min(each.blocks for each in estimates.values())
        if blocks >= most or (
            blocks >= least and all(estimates[name].is_plain(bound) for name, bound in bounds.items())
        ):
            return estimates

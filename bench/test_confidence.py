"""An interval that is too narrow would fail the bench on a busy machine; one too wide, never."""

from __future__ import annotations

import itertools
import random

import pytest

from bench.confidence import Bound, converge, estimate


@pytest.mark.parametrize("count", [9, 30, 60])
def test_the_median_lies_in_the_interval_as_often_as_is_said(count: int) -> None:
    chance = random.Random(1)
    held = 0
    for _ in range(2000):
        drawn = estimate([chance.lognormvariate(0, 0.5) for _ in range(count)])
        held += drawn.low <= 1 <= drawn.high
    assert held / 2000 >= 0.985


def test_a_few_blocks_say_little() -> None:
    assert (estimate([3.0, 1.0, 2.0]).low, estimate([3.0, 1.0, 2.0]).high) == (1.0, 3.0)


def test_it_goes_on_only_while_the_gate_is_in_doubt() -> None:
    bounds = {"far": Bound(0.3, "higher"), "near": Bound(0.3, "higher")}

    def blocks(*near: float) -> int:
        values = itertools.cycle(near)
        return converge(lambda: {"far": 0.4, "near": next(values)}, bounds, least=9, most=50)["near"].blocks

    assert blocks(0.2, 0.25) == 9
    assert blocks(0.5, 0.6) == 9
    assert blocks(0.2, 0.4) == 50
    assert blocks(0.299, 0.301) == 9

"""What a measurement says, and whether that is good enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from bench.confidence import Bound, Estimate


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    value: float
    gate: float
    """What the product is held to: the bench fails when the value is beyond it for sure."""
    goal: float
    better: Literal["higher", "lower"]
    detail: str
    low: float
    high: float
    """Between these the value lies, at 99 %; what is counted rather than timed is what it is."""

    @classmethod
    def timed(cls, name: str, estimate: Estimate, bound: Bound, *, goal: float, detail: str) -> Self:
        return cls(
            name,
            estimate.value,
            bound.gate,
            goal,
            bound.better,
            f"{detail}; {estimate.blocks} blocks",
            estimate.low,
            estimate.high,
        )

    @classmethod
    def counted(cls, name: str, value: float, bound: Bound, *, goal: float, detail: str) -> Self:
        return cls(name, value, bound.gate, goal, bound.better, detail, value, value)

    @property
    def ok(self) -> bool:
        return self.high >= self.gate if self.better == "higher" else self.low <= self.gate

    @property
    def verdict(self) -> str:
        if not self.ok:
            return "FAILED"
        if not self._reaches(self.gate):
            return "unsure"
        return "goal" if self._reaches(self.goal) else "ok"

    def _reaches(self, bound: float) -> bool:
        return self.value >= bound if self.better == "higher" else self.value <= bound

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.ok, "verdict": self.verdict}


def table(results: Sequence[Result]) -> str:
    rows = [("", "value", "99 %", "gate", "goal", "", "")]
    for result in results:
        sign = "≥" if result.better == "higher" else "≤"
        bounds = (f"{sign} {result.gate:g}", f"{sign} {result.goal:g}")
        spread = "" if result.low == result.high else f"{result.low:.3g} to {result.high:.3g}"
        rows.append((result.name, f"{result.value:.3g}", spread, *bounds, result.verdict, result.detail))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )

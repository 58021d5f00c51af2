"""What a measurement says, and whether that is good enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    value: float
    gate: float
    """What the product is held to: the bench fails beyond it."""
    goal: float
    better: Literal["higher", "lower"]
    detail: str

    @property
    def ok(self) -> bool:
        return self.value >= self.gate if self.better == "higher" else self.value <= self.gate

    @property
    def reached(self) -> bool:
        return self.value >= self.goal if self.better == "higher" else self.value <= self.goal

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.ok}


def table(results: Sequence[Result]) -> str:
    rows = [("", "value", "gate", "goal", "", "")]
    for result in results:
        sign = "≥" if result.better == "higher" else "≤"
        verdict = "FAILED" if not result.ok else "goal" if result.reached else "ok"
        bounds = (f"{sign} {result.gate:g}", f"{sign} {result.goal:g}")
        rows.append((result.name, f"{result.value:.3g}", *bounds, verdict, result.detail))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )

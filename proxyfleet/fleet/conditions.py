"""The three conditions of a proxy, in the shape of metav1.Condition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Condition:
    type: Literal["Provisioned", "Healthy", "Ready"]
    status: Status
    reason: str
    message: str = ""


def merge(
    previous: Iterable[Mapping[str, object]], now_true: Iterable[Condition], *, generation: int, now: datetime
) -> list[dict[str, object]]:
    """The conditions to store. ``lastTransitionTime`` moves only when a status does."""
    before = {str(condition["type"]): condition for condition in previous}
    for condition in now_true:
        old = before.get(condition.type)
        unchanged = old is not None and old["status"] == condition.status
        before[condition.type] = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "observedGeneration": generation,
            "lastTransitionTime": old["lastTransitionTime"]
            if old and unchanged
            else now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    return [dict(before[kind]) for kind in ("Provisioned", "Healthy", "Ready") if kind in before]

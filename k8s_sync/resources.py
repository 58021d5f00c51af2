"""What the fleet reads of a Proxy object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from proxyfleet.fleet.conditions import Condition, merge
from proxyfleet.fleet.phases import Phase
from proxyfleet.fleet.spec import Mode


@dataclass(frozen=True, slots=True)
class Declaration:
    """What an operator declared by a Proxy object. The spec is as written: nothing has judged it but the CRD."""

    uid: UUID
    namespace: str
    name: str
    generation: int
    spec: Mapping[str, Any]

    @classmethod
    def read(cls, proxy: Mapping[str, Any]) -> Self:
        metadata = proxy["metadata"]
        return cls(
            uid=UUID(metadata["uid"]),
            namespace=metadata["namespace"],
            name=metadata["name"],
            generation=metadata["generation"],
            spec=proxy.get("spec", {}),
        )

    @property
    def is_managed(self) -> bool:
        return bool(self.spec.get("mode", Mode.MANAGED) == Mode.MANAGED)


_OF_A_ROW = (
    "providerID",
    "ip",
    "port",
    "egressIP",
    "instanceHash",
    "lastHealthCheckTime",
    "leases",
    "targetsCooling",
)


def refused_status(proxy: Mapping[str, Any], reason: str, message: str, now: datetime) -> dict[str, Any]:
    """The status of an object that has no row, because its declaration was refused. None takes a field away: it is of
    a row that the object once had.
    """
    shown = proxy.get("status", {}).get("conditions", ())
    was_ready = next((condition for condition in shown if condition["type"] == "Ready"), None)
    generation = proxy["metadata"]["generation"]
    conditions = merge(
        [was_ready] if was_ready else [], [Condition("Ready", "False", reason, message)], generation=generation, now=now
    )
    return {
        "phase": Phase.FAILED.value,
        "observedGeneration": generation,
        "conditions": conditions,
        "message": message,
        **dict.fromkeys(_OF_A_ROW),
    }

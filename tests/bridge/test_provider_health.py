"""One ProviderHealth for each configured entry, and no write while nothing changes."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from proxyfleet.fleet.models import ProviderState
from tests.bridge.bridges import running
from tests.bridge.operator import Operator

TARGETS = [
    {"name": "host1", "ready": True, "reason": "Healthy", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    {
        "name": "host2",
        "ready": False,
        "reason": "HostKeyMismatch",
        "message": "host2 presents another key",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    },
]


def test_entries_have_an_object_and_dropped_ones_none(operator: Operator) -> None:
    def shown() -> dict[str, Any]:
        return {obj["metadata"]["name"]: obj for obj in operator.cluster.get("ph")["items"]}

    ProviderState.objects.create(
        entry="kvm-home",
        check_ready=False,
        check_reason="HostKeyMismatch",
        check_message="1 of 2 targets is not ready",
        check_targets=TARGETS,
        check_changed_at=timezone.now(),
    )
    with running(operator.cluster, operator.namespace, **{"kvm-home": "kvm", "new": "process"}):
        operator.until(lambda: "status" in shown().get("kvm-home", {}) and "new" in shown())
        health = shown()["kvm-home"]
        assert (health["spec"], health["status"]["targets"]) == ({"type": "kvm"}, TARGETS)
        [condition] = health["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", "HostKeyMismatch")
        assert "conditions" not in shown()["new"].get("status", {}), "nobody has checked it yet"
        ProviderState.objects.update(check_ready=True, check_reason="Healthy", check_message="", check_targets=[])
        operator.until(lambda: shown()["kvm-home"]["status"]["conditions"][0]["status"] == "True")
    with running(operator.cluster, operator.namespace, new="kvm2"):
        operator.until(lambda: set(shown()) == {"new"} and shown()["new"]["spec"] == {"type": "kvm2"})

"""What the API server would refuse of an Event."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from k8s_sync.events import event_object
from proxyfleet.fleet.models import ProxyEvent
from proxyfleet.fleet.spec import check_identity

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def told(name: str = "p", pk: int = 255, **fields: Any) -> dict[str, Any]:
    event = ProxyEvent(pk=pk, at=NOW, **{"kind": "ProviderError", **fields})
    proxy = {"metadata": {"name": name, "namespace": "crawl", "uid": str(uuid4())}}
    return event_object(event, proxy, instance="bridge")


@pytest.mark.parametrize("name", ["p", ".".join(["p" * 62] * 4), ".".join([*["p" * 62] * 3, "p" * 46, "p" * 17])])
def test_its_name_is_one_that_objects_can_have(name: str) -> None:
    made = told(name, pk=2**60)["metadata"]["name"]
    check_identity("crawl", made)
    assert made.endswith(".1000000000000000")


def test_its_note_fits() -> None:
    assert len(told(message="→" * 2000)["note"].encode()) <= 1024
    assert told()["note"] == "ProviderError", "it must not be empty"


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"kind": "PhaseChanged", "old_phase": "Unhealthy", "new_phase": "Ready"}, "Normal"),
        ({"kind": "PhaseChanged", "old_phase": "Ready", "new_phase": "Unhealthy"}, "Warning"),
        ({"kind": "HealthChanged", "reason": "Ok"}, "Normal"),
        ({"kind": "HealthChanged", "reason": "Timeout"}, "Warning"),
        ({"kind": "InstanceLost"}, "Warning"),
    ],
)
def test_bad_news_are_warnings(fields: dict[str, Any], kind: str) -> None:
    assert told(**fields)["type"] == kind

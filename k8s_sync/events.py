"""What happened to a proxy, as an Event of Kubernetes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from k8s_sync.kinds import PROXY
from proxyfleet.fleet.phases import Phase

if TYPE_CHECKING:
    from proxyfleet.fleet.models import ProxyEvent

CONTROLLER = "crawl.example.com/proxyfleet"
MAX_NOTE = 1024
"""The API server takes no longer ``note``."""
MAX_NAME = 253

KNOWN_TO_THE_CLUSTER = frozenset({"Declared", "SpecChanged", "DeletionRequested"})
"""Kinds that the cluster needs no news of: they were done to the object itself."""

_WARNINGS = frozenset(
    {"InstanceLost", "InstanceAbandoned", "ProviderError", "ProbeTargetSuspect", "EgressShared", "AddressLeaked"}
)
_ACTIONS = {
    "InstanceCreated": "CreateInstance",
    "InstanceDeleted": "DeleteInstance",
    "InstanceAbandoned": "SkipCleanup",
    "SkipCleanupRequested": "SkipCleanup",
    "SkipCleanupWithdrawn": "SkipCleanup",
    "HealthChanged": "Probe",
    "ProbeTargetSuspect": "Probe",
    "ProbeTargetCleared": "Probe",
    "EgressShared": "Probe",
    "AddressLeaked": "Probe",
    "ReplacementRequested": "ReplaceInstance",
    "Cordoned": "Cordon",
    "Uncordoned": "Uncordon",
    "Released": "Release",
}


def event_object(event: ProxyEvent, proxy: Mapping[str, Any], *, instance: str) -> dict[str, Any]:
    """The Event that tells of ``event`` on the Proxy object ``proxy``; ``instance`` names the process that tells it.

    Its name is the same each time, so that telling it again after a crash makes no second one.
    """
    metadata = proxy["metadata"]
    suffix = f".{event.pk:x}"
    return {
        "metadata": {
            "name": metadata["name"][: MAX_NAME - len(suffix)].rstrip(".-") + suffix,
            "namespace": metadata["namespace"],
        },
        "eventTime": event.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning" if _is_warning(event) else "Normal",
        "reason": event.kind,
        "action": _ACTIONS.get(event.kind, "Reconcile"),
        "note": _cut(_note(event)),
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
        "regarding": {
            "apiVersion": PROXY.api_version,
            "kind": PROXY.name,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }


def _is_warning(event: ProxyEvent) -> bool:
    match event.kind:
        case "PhaseChanged":
            return event.new_phase in (Phase.FAILED, Phase.UNHEALTHY)
        case "HealthChanged":
            return event.reason != "Ok"
    return event.kind in _WARNINGS


def _note(event: ProxyEvent) -> str:
    phases = f"{event.old_phase} → {event.new_phase}" if event.new_phase else ""
    asked_by = f"by {event.actor}" if event.actor else ""
    return ": ".join(filter(None, (phases, event.reason, event.message, asked_by))) or event.kind


def _cut(text: str) -> str:
    """At most MAX_NOTE bytes."""
    return text.encode()[:MAX_NOTE].decode(errors="ignore")

"""What a pod's status means: one of our five states, and the reason in a line for the proxy's owner. Pure."""

from __future__ import annotations

from typing import Any

from providers.instances import InstanceState

Object = dict[str, Any]

HOPELESS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
"""Reasons for which a container waits and that don't pass by themselves, unlike a registry's or a node's trouble."""


def state_of(pod: Object) -> tuple[InstanceState, str]:
    """A pod runs once Squid listens; a container that waits or restarts is on its way there, and says why."""
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return InstanceState.DELETING, ""
    match status.get("phase"):
        case "Succeeded":
            return InstanceState.STOPPED, _line("Squid ended", _ending(_squid(status).get("state", {})))
        case "Failed":
            ending = _ending(_squid(status).get("state", {}))
            return InstanceState.FAILED, _line(
                status.get("reason", "") or "Squid failed", status.get("message") or ending
            )
    squid = _squid(status)
    state = squid.get("state", {})
    if "running" in state:
        if squid.get("started"):
            return InstanceState.RUNNING, ""
        return InstanceState.PROVISIONING, "Squid does not listen yet."
    if "terminated" in state:
        return InstanceState.PROVISIONING, _line("Squid ended and is started again", _ending(state))
    waiting = state.get("waiting", {})
    reason = waiting.get("reason", "")
    if reason in HOPELESS:
        return InstanceState.FAILED, _line(reason, waiting.get("message", ""))
    if reason:
        last = _ending(squid.get("lastState", {}))
        return InstanceState.PROVISIONING, _line(reason, "; ".join(filter(None, (waiting.get("message", ""), last))))
    return InstanceState.PROVISIONING, _unscheduled(status)


def _squid(status: Object) -> Object:
    return next(iter(status.get("containerStatuses", ())), {})


def _ending(state: Object) -> str:
    terminated = state.get("terminated")
    if not terminated:
        return ""
    return f"{terminated.get('reason') or 'ended'} (exit code {terminated.get('exitCode')})"


def _unscheduled(status: Object) -> str:
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return _line(condition.get("reason", ""), condition.get("message", ""))
    return ""


def _line(head: str, rest: str) -> str:
    return " ".join(f"{head}: {rest}".split()) if rest else head

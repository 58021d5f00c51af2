"""What each status that a kubelet or the scheduler writes means to a proxy."""

from __future__ import annotations

from typing import Any

import pytest

from providers.instances import InstanceState
from providers.kubernetes.states import state_of


def container(*, last: dict[str, Any] | None = None, started: bool = False, **state: Any) -> dict[str, Any]:
    return {"phase": "Pending", "containerStatuses": [{"state": state, "lastState": last or {}, "started": started}]}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
}
OOM = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
NO_SUCH_IMAGE = 'Back-off pulling image "nowhere/squid:1": ErrImagePull: not found'


@pytest.mark.parametrize(
    ("status", "state", "message"),
    [
        ({}, "provisioning", ""),
        ({"phase": "Pending"}, "provisioning", ""),
        (
            {"phase": "Pending", "conditions": [UNSCHEDULABLE]},
            "provisioning",
            "Unschedulable: 0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
        ),
        (container(waiting={"reason": "ContainerCreating"}), "provisioning", "ContainerCreating"),
        (
            container(waiting={"reason": "ImagePullBackOff", "message": NO_SUCH_IMAGE}),
            "provisioning",
            f"ImagePullBackOff: {NO_SUCH_IMAGE}",
        ),
        (
            container(waiting={"reason": "ErrImagePull", "message": "rpc error:\n not found"}),
            "provisioning",
            "ErrImagePull: rpc error: not found",
        ),
        (
            container(waiting={"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}),
            "provisioning",
            'CreateContainerConfigError: secret "x" not found',
        ),
        (
            container(waiting={"reason": "CrashLoopBackOff", "message": "back-off 10s"}, last=OOM),
            "provisioning",
            "CrashLoopBackOff: back-off 10s; OOMKilled (exit code 137)",
        ),
        (
            container(waiting={"reason": "InvalidImageName", "message": "couldn't parse image name"}),
            "failed",
            "InvalidImageName: couldn't parse image name",
        ),
        (container(running={}), "provisioning", "Squid does not listen yet."),
        (container(running={}, started=True), "running", ""),
        (
            container(terminated=OOM["terminated"]),
            "provisioning",
            "Squid ended and is started again: OOMKilled (exit code 137)",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
            "failed",
            "Evicted: The node was low on resource: memory.",
        ),
        (
            container(terminated=OOM["terminated"]) | {"phase": "Failed"},
            "failed",
            "Squid failed: OOMKilled (exit code 137)",
        ),
        ({"phase": "Succeeded"}, "stopped", "Squid ended"),
    ],
)
def test_a_status_has_a_state_and_a_line(status: dict[str, Any], state: str, message: str) -> None:
    assert state_of({"metadata": {}, "status": status}) == (InstanceState(state), message)


def test_a_pod_that_is_being_deleted_is_nothing_else() -> None:
    pod = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": container(running={}, started=True)}
    assert state_of(pod) == (InstanceState.DELETING, "")

"""One ProviderHealth for each configured entry, and no write while nothing changes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.utils import timezone

from k8s_sync.client import connect
from k8s_sync.kinds import FLEET_LABEL
from k8s_sync.leader import Leader, OfAnotherFleet
from proxyfleet.fleet.models import ProviderState
from tests.bridge.bridges import SYSTEM, add_account, running
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


def health_of(operator: Operator) -> dict[str, dict[str, Any]]:
    return {obj["metadata"]["name"]: obj for obj in operator.cluster.get("ph")["items"]}


def test_two_fleets_leave_each_other_alone(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    """Each with a namespace for its proxies, and one for its Lease."""
    caplog.set_level("WARNING", logger="k8s_sync.provider_health")
    account, other = "sync-two-fleets", operator.namespace
    add_account(operator.cluster, account)
    operator.kubectl("create", "role", "lease", "--verb=get,update,create", "--resource=leases")
    operator.kubectl("create", "rolebinding", "lease", "--role=lease", f"--serviceaccount={SYSTEM}:{account}")
    with (
        running(operator.cluster, operator.namespace, mine="kvm", shared="kvm"),
        running(
            *(operator.cluster, operator.namespace, account),
            fleet_id="other",
            lease_namespace=other,
            theirs="gcp",
            shared="gcp",
        ),
    ):
        operator.until(lambda: set(health_of(operator)) == {"mine", "shared", "theirs"})
        operator.until(lambda: "The ProviderHealth shared is that of the fleet" in caplog.text)
        uids = {name: obj["metadata"]["uid"] for name, obj in health_of(operator).items()}
        since = operator.cluster.audit.mark()
        time.sleep(3)  # rounds in which a fight would go on
        writes = operator.cluster.audit.writes(since, resource="providerhealths")
        assert writes == []
        shown = [line.split() for line in operator.cluster.kubectl("get", "ph", "-o", "wide").splitlines()]
        assert {(line[0], line[-2]) for line in shown} >= {("mine", "proxyfleet"), ("theirs", "other")}
        assert {name: obj["metadata"]["uid"] for name, obj in health_of(operator).items()} == uids
    assert caplog.text.count("The ProviderHealth shared is that of the fleet") == 1
    operator.cluster.kubectl("delete", "ph", "--all")


def test_a_lease_of_another_fleet_is_told(operator: Operator) -> None:
    kubeconfig = operator.cluster.service_account_kubeconfig(SYSTEM, "proxyfleet-sync")
    with running(operator.cluster, operator.namespace):
        other = Leader(connect(kubeconfig), namespace=SYSTEM, identity="elsewhere", fleet_id="other")
        with pytest.raises(OfAnotherFleet, match=r"is held by the fleet proxyfleet.*PROXYFLEET_LEASE_NAMESPACE"):
            other.campaign(timezone.now())


def test_an_object_of_nobody_becomes_ours(operator: Operator) -> None:
    """As one whose label somebody took away."""
    with running(operator.cluster, operator.namespace, mine="kvm"):
        operator.until(lambda: "mine" in health_of(operator))
        operator.cluster.kubectl("label", "ph", "mine", f"{FLEET_LABEL}-")
        operator.until(lambda: FLEET_LABEL in health_of(operator).get("mine", {}).get("metadata", {}).get("labels", {}))


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

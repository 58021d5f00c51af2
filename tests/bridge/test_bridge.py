"""The bridge on a real API server, with a reconciler on a backend in memory in between."""

from __future__ import annotations

import pytest

from k8s_sync.finalizers import FINALIZER
from proxyfleet.fleet.models import Proxy
from tests.bridge.bridges import running
from tests.bridge.operator import Operator

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_proxy_is_shown_from_apply_to_its_end(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
        row, status = operator.row("a"), operator.status("a")
        assert (status["ip"], status["providerID"], status["observedGeneration"]) == (row.address, row.provider_id, 1)
        assert {c["type"]: c["status"] for c in status["conditions"]} == dict.fromkeys(
            ("Provisioned", "Healthy", "Ready"), "True"
        )
        assert operator.proxy("a")["metadata"]["finalizers"] == [FINALIZER]
        assert len(operator.world.live()) == 1
        operator.kubectl("delete", "px", "a", "--wait=false")
        operator.until(lambda: not operator.exists("a"))
        assert operator.world.live() == []
        assert not Proxy.objects.exists()
    told = operator.kubectl(
        "get", "events.events.k8s.io", "-o", "jsonpath={range .items[*]}{.reason} {.note}{'\\n'}{end}"
    )
    for line in ("InstanceCreated", "PhaseChanged Provisioning → Ready: ProbeSucceeded", "InstanceDeleted", "Released"):
        assert line in told

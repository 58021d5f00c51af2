"""The bridge knows its cluster: in another one every proxy would look deleted."""

from __future__ import annotations

import pytest

from k8s_sync.client import connect
from k8s_sync.identity import AnotherCluster, confirm_cluster
from proxyfleet.fleet.models import ClusterMirror
from tests.bridge.bridges import SYSTEM, running
from tests.bridge.operator import Operator


def test_another_cluster_deletes_nothing_until_it_is_adopted(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
    ClusterMirror.objects.update(cluster_uid="of-the-cluster-before")
    with (
        pytest.raises(AnotherCluster, match=r"mirrored from of-the-cluster-before.*--adopt-cluster"),
        running(operator.cluster, operator.namespace),
    ):
        pytest.fail("it must not lead")
    confirm_cluster(connect(operator.cluster.service_account_kubeconfig(SYSTEM, "proxyfleet-sync")), adopt=True)
    with running(operator.cluster, operator.namespace):
        assert operator.row("a").deletion_requested_at is None

"""A cluster that was restored from a backup of its etcd: the same objects, older. From then on that is the truth."""

from __future__ import annotations

from leasing.models import ProxyLoad
from proxyfleet.fleet.models import Proxy
from tests.bridge.bridges import running
from tests.bridge.operator import Operator
from tests.bridge.test_mirror import catches_up


def test_a_cluster_restored_while_it_is_followed(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("edited", "deleted", attributes={"geo": "eu"})
        operator.until(lambda: catches_up(operator) and operator.phases() == {"Ready"})
        backup = operator.cluster.server.back_up()
        for leases in (2, 3, 4):
            operator.apply("edited", maxLeases=leases)
        operator.apply("new")
        operator.kubectl("delete", "px", "deleted", "--wait=false")
        operator.until(lambda: not operator.exists("deleted") and operator.row("edited").generation == 4)
        operator.until(lambda: catches_up(operator) and operator.phases() == {"Ready"})
        operator.cluster.server.restore(backup)
        operator.until(lambda: operator.row("edited").generation == 1, seconds=90)
        operator.until(lambda: catches_up(operator) and len(operator.world.live()) == 2, seconds=90)
        assert (operator.row("edited").max_leases, operator.row("edited").attributes) == (10, {"geo": "eu"})
        operator.until(lambda: operator.published() and operator.phases() == {"Ready"})
        assert operator.status("edited")["observedGeneration"] == 1
        operator.apply("edited", maxLeases=7)
        operator.until(lambda: operator.row("edited").max_leases == 7)
        assert {row.name for row in Proxy.objects.all()} == {"edited", "deleted"}


def test_another_spec_under_the_generation_that_the_row_has(operator: Operator) -> None:
    """Restored and edited again while no bridge ran."""
    with running(operator.cluster, operator.namespace):
        operator.apply("a", attributes={"geo": "eu"})
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
        backup = operator.cluster.server.back_up()
        operator.apply("a", attributes={"geo": "us"})
        operator.until(lambda: operator.row("a").generation == 2)
    known_to_leasing = ProxyLoad.objects.get().version
    operator.cluster.server.restore(backup)
    operator.apply("a", attributes={"geo": "ap"})
    with running(operator.cluster, operator.namespace):
        operator.until(lambda: operator.row("a").attributes == {"geo": "ap"})
    assert operator.row("a").generation == 2
    assert ProxyLoad.objects.get().version > known_to_leasing
    assert ProxyLoad.objects.get().leasable

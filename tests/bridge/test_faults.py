"""What else goes wrong in a cluster, by hand or by itself, while the bridge runs."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from k8s_sync import mirror, term
from k8s_sync.client import ApiServer, connect
from k8s_sync.errors import Unreachable
from k8s_sync.finalizers import FINALIZER
from k8s_sync.identity import confirm_cluster
from k8s_sync.kinds import GROUP, PROXY, Kind
from k8s_sync.leader import LEASE_NAME
from k8s_sync.mirror import Mirror
from proxyfleet.fleet.models import Proxy
from proxyfleet.local.processes import wait_until
from tests.bridge.bridges import ROOT, SYSTEM, running
from tests.bridge.operator import Operator
from tests.bridge.test_mirror import catches_up

EDITS = 200
SPEC_FIELDS = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties"


def is_ready(operator: Operator, *names: str) -> bool:
    return all(operator.status(name).get("phase") == "Ready" for name in names)


def test_a_server_that_hangs_is_told_and_then_caught_up_with(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace) as bridge:
        operator.apply("a")
        operator.until(lambda: is_ready(operator, "a"))
        with operator.cluster.server.hung():
            assert wait_until(lambda: "the Lease can't be looked at" in bridge.problem(), 60)
            assert bridge.is_alive
        operator.apply("b")
        assert wait_until(lambda: not bridge.problem(), 60), bridge.problem()
        operator.until(lambda: is_ready(operator, "a", "b"), 60)
        assert len(operator.world.live()) == 2


def test_a_lease_that_is_deleted_by_hand_is_made_again(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace) as bridge:
        operator.cluster.kubectl("delete", "lease", LEASE_NAME, "--namespace", SYSTEM)
        operator.apply("a")
        operator.until(lambda: is_ready(operator, "a"))
        assert not bridge.problem()


def test_connections_to_the_database_that_are_cut(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by its restart, be it at the very start of the bridge."""
    troubles = [OperationalError("the database system is starting up")]

    def confirm(api: ApiServer) -> None:
        if troubles:
            raise troubles.pop()
        confirm_cluster(api)

    monkeypatch.setattr(term, "confirm_cluster", confirm)
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: is_ready(operator, "a"))
        with connection.cursor() as cursor:
            others = "datname = current_database() and pid <> pg_backend_pid()"
            cursor.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {others}")
            assert cursor.rowcount > 0
        operator.apply("b")
        operator.until(lambda: is_ready(operator, "b"), 60)


def test_a_finalizer_that_is_taken_away_by_hand_comes_back(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: is_ready(operator, "a"))
        operator.kubectl("patch", "px", "a", "--type=merge", '-p={"metadata":{"finalizers":null}}')
        operator.until(lambda: operator.proxy("a")["metadata"].get("finalizers") == [FINALIZER])


def test_many_edits_at_once_end_in_the_last(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: is_ready(operator, "a"))
        url = operator.cluster.url + PROXY.path(namespace=operator.namespace, name="a")
        headers = {"Content-Type": "application/merge-patch+json"}
        with operator.cluster.session() as api, ThreadPoolExecutor(4) as pool:

            def edit(number: int) -> int:
                patch = {"spec": {"maxLeases": number + 1}, "metadata": {"labels": {"number": str(number)}}}
                return api.patch(url, json=patch, headers=headers).status_code

            assert set(pool.map(edit, range(EDITS))) == {200}
        operator.until(lambda: catches_up(operator) and operator.published())
        operator.until(
            lambda: operator.status("a")["observedGeneration"] == operator.proxy("a")["metadata"]["generation"]
        )
        assert len(operator.world.live()) == 1


def test_a_namespace_that_is_deleted_ends_with_its_proxies(operator: Operator) -> None:
    """In it nothing can be made any more, Events included."""
    with running(operator.cluster, operator.namespace):
        operator.apply("a", "b")
        operator.until(lambda: is_ready(operator, "a", "b"))
        operator.cluster.kubectl("delete", "namespace", operator.namespace, "--wait=false")
        operator.kubectl("delete", "px", "--all", "--wait=false")  # as the controller of namespaces does
        operator.until(lambda: not operator.proxies())
        assert not operator.world.live()


def test_a_crd_that_is_deleted_takes_its_proxies_along_and_can_come_back(operator: Operator) -> None:
    crds = str(ROOT / "deploy" / "crd")
    with running(operator.cluster, operator.namespace) as bridge:
        operator.apply("a")
        operator.until(lambda: is_ready(operator, "a"))
        operator.cluster.kubectl("delete", "crd", PROXY.plural + "." + GROUP, "--wait=false")
        operator.until(lambda: not operator.world.live() and not Proxy.objects.exists(), 60)
        assert wait_until(lambda: "proxies can't be followed" in bridge.problem(), 90), bridge.problem()
        operator.cluster.kubectl("apply", "-k", crds)
        operator.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
        operator.apply("a")
        operator.until(lambda: is_ready(operator, "a"), 90)
        assert wait_until(lambda: not bridge.problem(), 60), bridge.problem()


def test_a_kind_that_is_not_served_says_nothing_of_its_objects(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for the moment in which a version is no longer, or not yet, served: no row is to go for it."""
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: is_ready(operator, "a"))
    monkeypatch.setattr(mirror, "PROXY", Kind(GROUP, "v2", "Proxy", "proxies"))
    kubeconfig = operator.cluster.service_account_kubeconfig(SYSTEM, "proxyfleet-sync")
    with pytest.raises(Unreachable, match="404"):
        Mirror(connect(kubeconfig), namespace=operator.namespace).deliver(
            operator.proxy("a")["metadata"]["uid"], None, timezone.now()
        )
    assert operator.row("a").deletion_requested_at is None


def test_fields_that_the_bridge_does_not_know_are_told(operator: Operator) -> None:
    """Written by a newer CRD, or when a schema still let them pass."""
    crd, field = f"{PROXY.plural}.{GROUP}", SPEC_FIELDS + "/surprise"
    add = [{"op": "add", "path": field, "value": {"type": "string"}}]
    operator.cluster.kubectl("patch", "crd", crd, "--type=json", "--patch", json.dumps(add))
    try:
        with running(operator.cluster, operator.namespace):
            assert wait_until(lambda: applied(operator), 30)
            operator.until(lambda: "surprise: is not a field of a proxy" in operator.status("odd").get("message", ""))
            operator.apply("fine")
            operator.until(lambda: is_ready(operator, "fine"))
    finally:
        remove = [{"op": "remove", "path": field}]
        operator.cluster.kubectl("patch", "crd", crd, "--type=json", "--patch", json.dumps(remove))


def applied(operator: Operator) -> bool:
    """The API server takes a moment to take up another schema."""
    operator.kubectl("delete", "px", "odd", "--ignore-not-found", "--wait=false")
    manifest = {
        "apiVersion": PROXY.api_version,
        "kind": "Proxy",
        "metadata": {"name": "odd"},
        "spec": {"provider": "mem", "surprise": "x"},
    }
    operator.kubectl("create", "--validate=false", "-f", "-", stdin=json.dumps(manifest))
    return "surprise" in operator.proxy("odd")["spec"]

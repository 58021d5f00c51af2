"""The way in, on a real API server: whatever happens to objects, server or bridge, the rows end up like the cluster."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from k8s_sync.client import connect
from k8s_sync.finalizers import FINALIZER
from k8s_sync.kinds import PROXY
from k8s_sync.mirror import Mirror
from proxyfleet import conf
from proxyfleet.fleet import operations
from proxyfleet.fleet.completeness import MirrorIncomplete, require_complete_mirror
from proxyfleet.fleet.models import MirroredSecret, Origin, Proxy
from proxyfleet.fleet.reconciler import desired_hash
from proxyfleet.fleet.spec import ProxySpec
from proxyfleet.local.processes import wait_until
from tests.bridge.bridges import SYSTEM, running
from tests.bridge.operator import Operator, manifest

SECONDS = 60
OBJECTS = 100
LEAVING = "on its way out"
EXTERNAL = {"mode": "External", "endpoint": {"host": "192.0.2.7"}, "provider": ""}


def declared(operator: Operator) -> dict[str, Any]:
    """By uid, everything about each object of the cluster that the mirror must keep."""
    return {
        proxy["metadata"]["uid"]: LEAVING
        if "deletionTimestamp" in proxy["metadata"]
        else (proxy["metadata"]["name"], proxy["metadata"]["generation"], ProxySpec.parse(proxy["spec"]))
        for proxy in operator.cluster.get("px", "--namespace", operator.namespace)["items"]
    }


def mirrored(operator: Operator) -> dict[str, Any]:
    """The same of the rows. One on its way out may outlive its object."""
    wanted = declared(operator)
    return {
        str(row.uid): LEAVING if row.deletion_requested_at else (row.name, row.generation, row.spec)
        for row in Proxy.objects.filter(namespace=operator.namespace, origin=Origin.CLUSTER)
        if str(row.uid) in wanted or row.deletion_requested_at is None
    }


def catches_up(operator: Operator) -> bool:
    return wait_until(lambda: declared(operator) == mirrored(operator), SECONDS)


def recreate(operator: Operator, name: str, **spec: Any) -> None:
    """Make another object of the same name, whatever holds the first."""
    operator.kubectl("delete", "px", name, "--wait=false")
    operator.kubectl("patch", "px", name, "--type=merge", '-p={"metadata":{"finalizers":null}}')
    operator.apply(name, **spec)


def test_what_happened_while_the_bridge_was_down(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("kept", "edited", "deleted", "recreated")
        operator.apply("gone", **EXTERNAL)
        operator.until(lambda: catches_up(operator) and len(operator.world.live()) == 4)
    old = operator.row("recreated")
    operator.apply("edited", attributes={"geo": "eu"}, maxLeases=3)
    operator.apply("new")
    operator.kubectl("delete", "px", "deleted", "gone", "--wait=false")
    recreate(operator, "recreated", port=8080)
    with running(operator.cluster, operator.namespace):
        assert catches_up(operator)
        operator.until(lambda: len(operator.world.live()) == 4 and not operator.exists("deleted"))
        assert catches_up(operator)
    rows = Proxy.objects.filter(namespace=operator.namespace, deletion_requested_at=None)
    assert sorted(row.name for row in rows) == ["edited", "kept", "new", "recreated"]
    assert not operator.world.live(old.uid)
    assert operator.row("edited").attributes == {"geo": "eu"}


def test_a_killed_api_server_is_followed_from_where_the_watch_was(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("before")
        assert catches_up(operator)
        operator.cluster.kill()
        operator.cluster.start()
        operator.apply("after")
        operator.apply("before", maxLeases=2)
        assert catches_up(operator)
    assert operator.row("before").max_leases == 2


def test_a_compacted_history_is_made_up_for_by_a_list(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="k8s_sync.reflector")
    with running(operator.cluster, operator.namespace):
        operator.apply("before")
        operator.apply("gone", **EXTERNAL)
        assert catches_up(operator)
        operator.cluster.compact()
        operator.kubectl("delete", "px", "gone", "--wait=false")
        operator.apply("after")
        assert catches_up(operator)
    assert "proxies: listing again: the API server answered 410" in caplog.text


def test_managed_objects_are_held_before_there_is_a_row(operator: Operator) -> None:
    operator.apply("managed")
    operator.apply("external", **EXTERNAL)
    with running(operator.cluster, operator.namespace):
        assert catches_up(operator)
    assert operator.proxy("managed")["metadata"]["finalizers"] == [FINALIZER]
    assert "finalizers" not in operator.proxy("external")["metadata"]


def test_what_agrees_is_not_written_and_what_exists_is_not_deleted(operator: Operator) -> None:
    """Whatever the bridge believes: of a row that it misses in its list, it asks the API server."""
    operator.apply("a")
    kubeconfig = operator.cluster.service_account_kubeconfig(SYSTEM, "proxyfleet-sync")
    mirror = Mirror(connect(kubeconfig), namespace=operator.namespace)
    uid = operator.proxy("a")["metadata"]["uid"]
    mirror.deliver(uid, operator.proxy("a"), timezone.now())
    assert mirror.known() == [uid]
    before = operator.proxy("a")

    with CaptureQueriesContext(connection) as queries:
        mirror.deliver(uid, before, timezone.now())
        mirror.deliver(uid, None, timezone.now())
    assert [query["sql"] for query in queries if not query["sql"].startswith("SELECT")] == []
    assert operator.proxy("a") == before

    recreate(operator, "a")
    second = operator.proxy("a")["metadata"]["uid"]
    mirror.deliver(second, operator.proxy("a"), timezone.now())
    assert mirror.known() == [second]

    recreate(operator, "a")
    mirror.deliver(second, None, timezone.now())
    assert mirror.known() == []


def test_a_spec_that_only_the_model_refuses_is_answered_on_the_object(operator: Operator) -> None:
    bad = {"healthCheck": {"url": "http://169.254.169.254/"}}
    with running(operator.cluster, operator.namespace):
        operator.apply("wrong", **bad)
        operator.apply("edited")
        operator.until(lambda: operator.status("edited").get("phase") == "Ready")
        operator.until(lambda: operator.status("wrong").get("phase") == "Failed")
        status = operator.status("wrong")
        assert status["message"] == (
            "healthCheck.url: is a link-local or cloud-metadata address, which is never probed"
        )
        (condition,) = status["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", "InvalidSpec")
        assert not Proxy.objects.filter(name="wrong").exists()

        operator.apply("edited", maxLeases=3, **bad)
        operator.until(lambda: "generation 2 is refused" in operator.status("edited").get("message", ""))
        assert (operator.row("edited").max_leases, operator.status("edited")["phase"]) == (10, "Ready")

        operator.apply("wrong")
        operator.apply("edited", maxLeases=4)
        operator.until(lambda: operator.status("wrong").get("phase") == "Ready")
        operator.until(lambda: "message" not in operator.status("edited"))
        assert catches_up(operator)


def test_a_name_of_the_database_is_not_taken_over(operator: Operator) -> None:
    mine = operations.declare(operator.namespace, "taken", {"provider": "mem"}, actor="test", now=timezone.now())
    with running(operator.cluster, operator.namespace):
        operator.apply("taken")
        operator.until(lambda: operator.status("taken").get("phase") == "Failed")
        assert "NameTaken" in json.dumps(operator.status("taken"))
        assert [row.pk for row in Proxy.objects.filter(name="taken")] == [mine.pk]
        operations.request_deletion(mine.pk, actor="test", now=timezone.now())
        operator.until(lambda: operator.status("taken").get("phase") == "Ready")


def test_a_secret_from_unlabelled_to_deleted(operator: Operator, connected: None) -> None:
    label = "crawl.example.com/cloud-init"

    def runs_with(user_data: bytes) -> bool:
        row = operator.row("a")
        return bool(row.provider_id) and row.instance_hash == desired_hash(row, user_data)

    with running(operator.cluster, operator.namespace):
        operator.kubectl("create", "secret", "generic", "init", "--from-literal=user-data=first")
        operator.apply("a", cloudInit={"secretRef": {"name": "init"}})
        operator.until(lambda: "CloudInitError" in json.dumps(operator.status("a")))
        assert f'with the label {label}: \\"true\\"' in json.dumps(operator.status("a"))
        assert not operator.world.live()

        operator.kubectl("label", "secret", "init", f"{label}=true")
        operator.until(lambda: runs_with(b"first"))

        rotated = base64.b64encode(b"second \x00\xff").decode()
        operator.kubectl("patch", "secret", "init", f'-p={{"data":{{"user-data":"{rotated}"}}}}')
        operator.until(lambda: runs_with(b"second \x00\xff"))
        (machine,) = operator.world.live()

        operator.kubectl("delete", "secret", "init")
        operator.until(lambda: "CloudInitError" in json.dumps(operator.status("a")))
        assert operator.world.live() == [machine]
        assert not MirroredSecret.objects.exists()


def test_no_orphan_is_collected_before_the_mirror_is_complete(
    operator: Operator, connected: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MirrorIncomplete, match="never been mirrored in full"):
        require_complete_mirror(timezone.now())

    def refusal() -> str:
        try:
            require_complete_mirror(timezone.now())
        except MirrorIncomplete as incomplete:
            return str(incomplete)
        return ""

    with running(operator.cluster, operator.namespace):
        assert wait_until(lambda: refusal().startswith(f"only the namespace {operator.namespace}"), SECONDS)
        monkeypatch.setenv("PROXYFLEET_GC_ALLOW_NAMESPACED", "true")
        conf.settings.cache_clear()
        assert refusal() == ""


def test_many_objects_at_once(operator: Operator) -> None:
    with running(operator.cluster, operator.namespace):
        with operator.cluster.session() as api, ThreadPoolExecutor(4) as pool:
            url = operator.cluster.url + PROXY.path(namespace=operator.namespace)
            answers = pool.map(lambda number: api.post(url, json=manifest(f"p{number}")), range(OBJECTS))
            assert {answer.status_code for answer in answers} == {201}
        assert wait_until(lambda: Proxy.objects.filter(origin=Origin.CLUSTER).count() == OBJECTS, SECONDS)
        assert catches_up(operator)
    objects = operator.cluster.get("px", "--namespace", operator.namespace)["items"]
    assert all(obj["metadata"]["finalizers"] == [FINALIZER] for obj in objects)

"""What people change in the admin of a proxy of the cluster: by the web's own ServiceAccount, on the object."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from kubernetes.client import Configuration

from k8s_sync import cluster as write_through
from k8s_sync.client import ApiServer, connect
from k8s_sync.cluster import FIELD_MANAGER
from k8s_sync.finalizers import SKIP_CLEANUP
from proxyfleet import conf
from proxyfleet.fleet.tests.browsing import errors, filled, told
from proxyfleet.local.addresses import free_port
from tests.bridge.bridges import SYSTEM, running, user
from tests.bridge.operator import Operator

WEB = "proxyfleet-web"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def admin(operator: Operator, connected: None, monkeypatch: pytest.MonkeyPatch) -> Client:
    """An administrator's browser, and the ServiceAccount of the process that it talks to."""
    for module in ("editing", "providers"):
        monkeypatch.setattr(f"proxyfleet.fleet.admin.{module}.providers", lambda: operator.world.providers)
    api = connect(operator.cluster.service_account_kubeconfig(SYSTEM, WEB))
    monkeypatch.setattr(write_through, "_api", lambda: api)
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


def edit(operator: Operator, admin: Client, name: str, **changes: Any) -> Any:
    url = reverse("admin:fleet_proxy_edit", args=[operator.row(name).pk])
    return admin.post(url, filled(admin, url, **changes), follow=True)


def do(operator: Operator, admin: Client, verb: str, name: str) -> Any:
    values = {"ids": operator.row(name).pk, "confirmed": "yes"}
    return admin.post(reverse("admin:fleet_proxy_do", args=[verb]), values, follow=True)


def ours(operator: Operator, name: str) -> dict[str, Any]:
    """The fields that the admin manages."""
    [entry] = [e for e in operator.proxy(name)["metadata"]["managedFields"] if e["manager"] == FIELD_MANAGER]
    fields: dict[str, Any] = entry["fieldsV1"]
    return fields


def test_an_edit_is_made_in_the_cluster_and_comes_back(operator: Operator, admin: Client) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a", port=8080, attributes={"region": "eu"})
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
        shown = edit(operator, admin, "a", drain_seconds=60, attribute_lines="region=eu\ntier=gold")
        assert told(shown) == [f"{operator.namespace}/a is saved in the cluster."]
        operator.until(lambda: operator.row("a").generation == 2)
        assert (operator.row("a").drain_seconds, operator.row("a").attributes["tier"]) == (60, "gold")
        assert ours(operator, "a") == {"f:spec": {"f:attributes": {"f:tier": {}}, "f:drainSeconds": {}}}

        edit(operator, admin, "a", max_leases=3, attribute_lines="region=eu")
        operator.until(lambda: operator.row("a").generation == 3)
        spec = operator.proxy("a")["spec"]
        assert (spec["maxLeases"], spec["drainSeconds"], spec["attributes"]) == (3, 60, {"region": "eu"})
        assert ours(operator, "a") == {"f:spec": {"f:drainSeconds": {}, "f:maxLeases": {}}}
        assert {write.verb for write in operator.cluster.audit.writes(user=user(WEB))} == {"patch"}
    changes = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert changes == ["Changed Attributes, Drain seconds.", "Changed Attributes, Max leases."]


def test_what_others_manage_is_not_taken_from_them(operator: Operator, admin: Client) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a", port=8080, attributes={"region": "eu"})
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
        operator.kubectl("patch", "px", "a", "--type=merge", "--patch", '{"spec": {"maxLeases": 3}}')
        operator.until(lambda: operator.row("a").generation == 2)
        before = operator.proxy("a")
        theirs = "Is managed by kubectl-client-side-apply: change it there"
        refused = edit(operator, admin, "a", port=9090, drain_seconds=60)
        assert errors(refused) == {"port": [theirs]}
        refused = edit(operator, admin, "a", max_leases=5)
        assert errors(refused) == {"max_leases": ["Is managed by kubectl-patch: change it there"]}
        refused = edit(operator, admin, "a", attribute_lines="")
        assert errors(refused) == {"attribute_lines": [theirs]}
        assert operator.proxy("a")["spec"] == before["spec"]
        assert not LogEntry.objects.exists()


def test_one_who_looked_at_another_generation_is_told(operator: Operator, admin: Client) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
    operator.kubectl("patch", "px", "a", "--type=merge", "--patch", '{"spec": {"maxLeases": 3}}')
    [[message]] = errors(edit(operator, admin, "a", drain_seconds=60)).values()
    assert "has generation 2 in the cluster and 1 here" in message


def test_deletion_and_skip_cleanup_are_asked_of_the_object(operator: Operator, admin: Client) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
        operator.world.providers.configure([])
        edit(operator, admin, "a", max_leases=3)
        do(operator, admin, "skip-cleanup", "a")
        assert operator.proxy("a")["metadata"]["annotations"][SKIP_CLEANUP] == "true"
        assert operator.proxy("a")["spec"]["maxLeases"] == 3, "what was edited before stays"
        assert told(do(operator, admin, "delete", "a")) == [f"Deletion asked for: {operator.namespace}/a."]
        operator.until(lambda: not operator.exists("a"))


def test_a_cluster_that_is_away_is_a_message(
    operator: Operator, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready")
    away = Configuration(host=f"https://127.0.0.1:{free_port()}")
    monkeypatch.setattr(write_through, "_api", lambda: ApiServer(lambda: away))
    [[message]] = errors(edit(operator, admin, "a", drain_seconds=60)).values()
    assert "could not be changed in the cluster" in message
    [refused] = told(do(operator, admin, "delete", "a"))
    assert refused.startswith("Not done")


def test_with_the_bridge_off_nothing_is_written_until_the_proxy_is_taken_over(
    operator: Operator, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(operator.cluster, operator.namespace):
        operator.apply("a")
        operator.until(lambda: operator.published() and operator.status("a").get("phase") == "Ready")
    monkeypatch.setenv("PROXYFLEET_CLUSTER_SYNC", "false")
    conf.settings.cache_clear()
    before = operator.proxy("a")
    [[message]] = errors(edit(operator, admin, "a", max_leases=3)).values()
    assert "`manage.py leave_cluster`" in message
    page = admin.get(reverse("admin:fleet_proxy_change", args=[operator.row("a").pk]))
    assert "manage.py leave_cluster" in page.content.decode()
    [refused] = told(do(operator, admin, "delete", "a"))
    assert refused.startswith("Not done")
    assert (operator.proxy("a"), operator.row("a").max_leases) == (before, 10)

    call_command("leave_cluster")
    assert told(edit(operator, admin, "a", max_leases=3)) == [f"{operator.namespace}/a is saved."]
    row = operator.row("a")
    with running(operator.cluster, operator.namespace):  # on again one day
        operator.until(lambda: operator.reason("a") == "NameTaken")
        assert "ip" not in operator.status("a")
        operator.kubectl("delete", "px", "a", "--wait=false")
        operator.until(lambda: not operator.exists("a"))
    assert (operator.row("a").uid, operator.row("a").deletion_requested_at) == (row.uid, None)
    assert len(operator.world.live(row.uid)) == 1

"""deploy/rbac grants what the processes do, and nothing on top."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest
import yaml
from django.utils import timezone

from k8s_sync import bridge, reflector
from k8s_sync.client import connect
from k8s_sync.errors import Refused, Unreachable
from k8s_sync.kinds import PROXY
from k8s_sync.mirror import Mirror
from k8s_sync.rights import needed
from proxyfleet.fleet.models import ProviderState, Proxy
from proxyfleet.local.processes import wait_until
from tests.bridge.bridges import SYSTEM, add_account, running, user
from tests.bridge.operator import Operator
from tests.cluster.cluster import Cluster, KubectlError

RBAC = Path(__file__).parent.parent.parent / "deploy" / "rbac"
WRITES = {"create", "update", "patch", "delete"}


def granted(file: str) -> set[tuple[str, str]]:
    """Verb and resource of all its rules."""
    return {
        (verb, resource)
        for manifest in yaml.safe_load_all((RBAC / file).read_text())
        for rule in manifest.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_every_write_that_the_bridge_may_make_is_one_that_it_makes(operator: Operator) -> None:
    since = operator.cluster.audit.mark()
    ProviderState.objects.create(entry="mem", check_ready=True, check_reason="Healthy", check_changed_at=timezone.now())
    operator.cluster.kubectl("delete", "lease", "proxyfleet-sync", "--namespace", SYSTEM, "--ignore-not-found")
    operator.cluster.kubectl("delete", "ph", "--all")
    with running(operator.cluster, operator.namespace, mem="process"):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready" and operator.cluster.get("ph")["items"])
    with running(operator.cluster, operator.namespace):
        operator.until(lambda: not operator.cluster.get("ph")["items"])
    made = operator.cluster.audit.writes(since, user=user("proxyfleet-sync"))
    assert {write.code for write in made} <= {200, 201, 409}, "nothing was forbidden"
    assert {(write.verb, write.resource) for write in made} == {
        (verb, resource) for verb, resource in granted("sync.yaml") if verb in WRITES
    }


def test_every_right_is_asked_for() -> None:
    asked = {
        (right.verb, f"{right.kind.plural}/{right.subresource}".rstrip("/"))
        for right in needed(namespace=None, lease_namespace=SYSTEM)
    }
    assert asked == granted("sync.yaml") - {("get", "namespaces")}


def test_rights_that_are_taken_away_are_told_and_cost_no_row(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bridge, "RIGHTS_SECONDS", 0.5)
    monkeypatch.setattr(reflector, "MOMENT_SECONDS", 1)
    monkeypatch.setattr(reflector, "LONGEST_DELAY_SECONDS", 1)
    account, binding = "sync-robbed", "clusterrolebinding/sync-robbed-proxyfleet-sync"
    add_account(operator.cluster, account)
    with running(operator.cluster, operator.namespace, account=account) as running_bridge:
        operator.apply("a", "b")
        operator.until(lambda: operator.published() and operator.phases() == {"Ready"})
        granted_by = operator.cluster.get(binding)
        operator.cluster.kubectl("delete", binding)
        assert wait_until(lambda: "may not get proxies" in running_bridge.problem(), 30), running_bridge.problem()
        assert f"patch proxies/status in the namespace {operator.namespace}" in running_bridge.problem()
        assert "Rights are missing: this account may not get proxies" in caplog.text
        operator.cluster.kill()  # watches end, and none may be opened again
        operator.cluster.start()
        assert wait_until(lambda: "proxies can't be followed" in running_bridge.problem(), 60), running_bridge.problem()
        operator.kubectl("delete", "px", "b", "--wait=false")
        mirror = Mirror(
            connect(operator.cluster.service_account_kubeconfig(SYSTEM, account)), namespace=operator.namespace
        )
        for uid in mirror.known():  # as when a list had not shown them
            with pytest.raises(Refused, match="403"):
                mirror.deliver(uid, None, timezone.now())
        assert not Proxy.objects.exclude(deletion_requested_at=None).exists()
        operator.cluster.kubectl("create", "-f", "-", stdin=json.dumps(anew(granted_by)))
        assert wait_until(lambda: not running_bridge.problem(), 60), running_bridge.problem()
        operator.until(lambda: not operator.exists("b"))


def anew(obj: dict[str, Any]) -> dict[str, Any]:
    """To be created again."""
    return obj | {"metadata": {"name": obj["metadata"]["name"]}}


def test_one_namespace_takes_rights_in_that_one_only(operator: Operator) -> None:
    add_account(operator.cluster, "sync-narrow", namespace=operator.namespace)
    with running(operator.cluster, operator.namespace, account="sync-narrow"):
        operator.apply("a")
        operator.until(lambda: operator.status("a").get("phase") == "Ready")


def test_nobody_may_read_what_is_none_of_its_business(operator: Operator) -> None:
    def may(account: str, verb: str, resource: str, namespace: str) -> bool:
        try:
            operator.cluster.kubectl(
                *("auth", "can-i", verb, resource, "--namespace", namespace, "--as", user(account), "--quiet")
            )
        except KubectlError:
            return False
        return True

    assert may("proxyfleet-sync", "watch", "secrets", operator.namespace)
    assert may("proxyfleet-web", "patch", "proxies.crawl.example.com", operator.namespace)
    assert may("proxyfleet-worker", "create", "pods", SYSTEM)
    for account, verb, resource, namespace in (
        ("proxyfleet-sync", "get", "secrets", operator.namespace),
        ("proxyfleet-sync", "create", "proxies.crawl.example.com", operator.namespace),
        ("proxyfleet-sync", "update", "leases.coordination.k8s.io/another", SYSTEM),
        ("proxyfleet-web", "list", "secrets", operator.namespace),
        ("proxyfleet-web", "create", "proxies.crawl.example.com", operator.namespace),
        ("proxyfleet-worker", "list", "secrets", SYSTEM),
        ("proxyfleet-worker", "create", "pods", operator.namespace),
    ):
        assert not may(account, verb, resource, namespace), (account, verb, resource)


def test_a_token_that_is_replaced_in_the_kubeconfig_is_taken_up(installed: Cluster, tmp_path: Path) -> None:
    good = installed.service_account_kubeconfig(SYSTEM, "proxyfleet-sync").read_text()
    token = yaml.safe_load(good)["users"][0]["user"]["token"]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(good.replace(token, "expired"))
    api = connect(kubeconfig)
    with pytest.raises(Refused, match="401"):
        api.list(PROXY)
    kubeconfig.write_text(good)
    with suppress(Refused):
        api.list(PROXY)  # by which it learns that what it read last is refused
    api.list(PROXY)


def test_a_kubeconfig_that_is_broken_is_not_quoted(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("users: [{token: hush-hush\n")
    with pytest.raises(Unreachable, match="the kubeconfig is not YAML") as raised:
        connect(kubeconfig)
    assert "hush" not in "".join(format_exception(raised.value))

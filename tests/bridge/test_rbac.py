"""deploy/rbac grants what the processes do, and nothing on top."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from traceback import format_exception

import pytest
import yaml
from django.utils import timezone

from k8s_sync.client import connect
from k8s_sync.errors import Refused, Unreachable
from k8s_sync.kinds import PROXY
from proxyfleet.fleet.models import ProviderState
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

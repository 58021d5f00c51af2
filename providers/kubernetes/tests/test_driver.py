"""What the API server refuses, and what the driver makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from providers.errors import (
    AuthenticationFailed,
    Conflict,
    InstanceNotFound,
    InvalidRequest,
    Misconfigured,
    PermissionDenied,
    QuotaExceeded,
    Unavailable,
)
from providers.instances import InstanceRequest, InstanceState, Placement
from providers.kubernetes import api
from providers.kubernetes.driver import KubernetesProvider
from providers.kubernetes.tests.conftest import Open
from providers.tests.contract import FLEET, make_request
from tests.cluster.cluster import Cluster

QUOTA = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: few}
spec: {hard: {pods: "1"}}
"""
DRIVERS_ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: proxies}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, create, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: proxies}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: proxies}
subjects: [{kind: ServiceAccount, name: proxyfleet}]
"""

Pod = Callable[[str], dict[str, Any]]


def placed(**placement: str) -> InstanceRequest:
    return replace(make_request(), placement=Placement(**placement))


@pytest.fixture
def pod_of(cluster: Cluster) -> Pod:
    def pod_of(provider_id: str) -> dict[str, Any]:
        namespace, name, _ = provider_id.removeprefix("in-cluster://").split("/")
        return cluster.get("pod", name, "-n", namespace)

    return pod_of


@pytest.fixture
def account(cluster: Cluster, ready_namespace: str) -> str:
    """The kubeconfig of an account without any right."""
    cluster.kubectl("create", "serviceaccount", "proxyfleet", "-n", ready_namespace)
    return str(cluster.service_account_kubeconfig(ready_namespace, "proxyfleet"))


class TestRefusals:
    @pytest.mark.parametrize(
        ("placement", "words"),
        [
            ({"image": "Not An Image"}, "placement.image"),
            ({"machine_type": "small"}, "placement.machineType"),
            ({"zone": "no such/zone"}, "placement.zone"),
        ],
    )
    def test_a_wrong_placement_names_its_field(
        self, provider: KubernetesProvider, placement: dict[str, str], words: str
    ) -> None:
        with pytest.raises(InvalidRequest, match=words):
            provider.create(placed(**placement))
        assert not provider.list().instances

    def test_a_missing_namespace_is_named(self, open_provider: Open) -> None:
        provider = open_provider(namespace="nowhere")
        with pytest.raises(Misconfigured, match='"nowhere" not found: make it'):
            provider.create(make_request())
        assert [(target.ready, target.reason) for target in provider.check()] == [(False, "Misconfigured")]

    def test_a_quota_is_waited_for(self, cluster: Cluster, ready_namespace: str, provider: KubernetesProvider) -> None:
        cluster.kubectl("apply", "-n", ready_namespace, "-f", "-", stdin=QUOTA)
        used_up = json.dumps({"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}})
        cluster.kubectl(
            *("patch", "quota", "few", "-n", ready_namespace, "--subresource=status", "--type=merge", "-p", used_up)
        )
        with pytest.raises(QuotaExceeded, match="exceeded quota: few"):
            provider.create(make_request())
        assert [target.reason for target in provider.check()] == ["QuotaExceeded"]

    def test_credentials_that_are_not_accepted(self, cluster: Cluster, open_provider: Open, tmp_path: Path) -> None:
        kubeconfig = tmp_path / "kubeconfig"
        cluster.server.pki.write_kubeconfig(kubeconfig, cluster.url, "a-token-of-nobody")
        provider = open_provider(kubeconfigFile=str(kubeconfig))
        with pytest.raises(AuthenticationFailed) as refusal:
            provider.list()
        assert "a-token-of-nobody" not in str(refusal.value) + refusal.value.detail
        assert [target.reason for target in provider.check()] == ["AuthenticationFailed"]

        kubeconfig.write_text(cluster.kubeconfig.read_text())
        assert provider.list().instances == ()

    def test_an_account_needs_the_four_verbs_and_no_more(
        self, cluster: Cluster, ready_namespace: str, open_provider: Open, account: str
    ) -> None:
        provider = open_provider(kubeconfigFile=account)
        with pytest.raises(PermissionDenied, match="cannot create resource"):
            provider.create(make_request())
        assert [target.reason for target in provider.check()] == ["PermissionDenied"]

        cluster.kubectl("apply", "-n", ready_namespace, "-f", "-", stdin=DRIVERS_ROLE)
        assert [target.reason for target in provider.check()] == ["Healthy"]
        made = provider.create(make_request())
        assert provider.get(made.provider_id) == made
        provider.delete(made.provider_id)
        assert not provider.list().instances

    def test_a_check_finds_the_verb_that_is_missing(
        self, cluster: Cluster, ready_namespace: str, open_provider: Open, account: str
    ) -> None:
        without_delete = DRIVERS_ROLE.replace(", delete", "")
        cluster.kubectl("apply", "-n", ready_namespace, "-f", "-", stdin=without_delete)
        [target] = open_provider(kubeconfigFile=account).check()
        assert (target.reason, target.message) == (
            "PermissionDenied",
            f"our account may not delete pods in the namespace {ready_namespace}",
        )

    def test_no_kubeconfig_is_no_access(self, open_provider: Open, tmp_path: Path) -> None:
        (tmp_path / "broken").write_text("users: [{user: {token: s3cret")
        for name in ("missing", "broken"):
            provider = open_provider(kubeconfigFile=str(tmp_path / name))
            with pytest.raises(Misconfigured, match="no access to a cluster") as refusal:
                provider.list()
            assert "s3cret" not in str(refusal.value) + refusal.value.detail


class TestPods:
    def test_a_check_makes_no_pod(self, cluster: Cluster, ready_namespace: str, provider: KubernetesProvider) -> None:
        assert [target.name for target in provider.check()] == [ready_namespace]
        assert cluster.get("pods", "-n", ready_namespace)["items"] == []

    def test_the_namespace_is_the_kubeconfigs_unless_one_is_named(
        self, cluster: Cluster, ready_namespace: str, open_provider: Open, account: str
    ) -> None:
        cluster.kubectl("apply", "-n", ready_namespace, "-f", "-", stdin=DRIVERS_ROLE)
        provider = open_provider(kubeconfigFile=account, namespace=None)
        assert provider.create(make_request()).provider_id.startswith(f"in-cluster://{ready_namespace}/{FLEET}-")

    def test_placement_and_port_reach_the_pod(self, provider: KubernetesProvider, pod_of: Pod) -> None:
        request = replace(placed(zone="eu-1", image="registry.example.com/squid:7"), port=80)
        spec = pod_of(provider.create(request).provider_id)["spec"]
        [squid] = spec["containers"]
        assert spec["nodeSelector"] == {"topology.kubernetes.io/zone": "eu-1"}
        assert squid["image"] == "registry.example.com/squid:7"
        assert [port["containerPort"] for port in squid["ports"]] == [80]

    def test_a_listing_follows_its_pages(self, provider: KubernetesProvider, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(api, "PAGE_SIZE", 2)
        made = {provider.create(make_request()).provider_id for _ in range(5)}
        assert {found.provider_id for found in provider.list()} == made

    def test_one_that_lost_its_marks_is_neither_gone_nor_destroyed(
        self, cluster: Cluster, ready_namespace: str, provider: KubernetesProvider
    ) -> None:
        request = make_request()
        made = provider.create(request)
        cluster.kubectl("label", "pod", request.name, "-n", ready_namespace, "crawl.example.com/proxy-uid-")
        assert provider.list().unreachable == (request.name,)
        with pytest.raises(Unavailable, match="lost the labels"):
            provider.get(made.provider_id)

    def test_a_pod_of_another_entry_is_not_ours(
        self, cluster: Cluster, ready_namespace: str, provider: KubernetesProvider
    ) -> None:
        request = make_request()
        made = provider.create(request)
        mark = "crawl.example.com/entry=another"
        cluster.kubectl("label", "pod", request.name, "-n", ready_namespace, "--overwrite", mark)
        assert not provider.list().instances
        with pytest.raises(InstanceNotFound):
            provider.get(made.provider_id)
        with pytest.raises(Conflict):
            provider.create(request)
        provider.delete(made.provider_id)
        assert len(cluster.get("pods", "-n", ready_namespace)["items"]) == 1

    def test_one_that_is_still_being_deleted_is_waited_for(
        self, cluster: Cluster, ready_namespace: str, provider: KubernetesProvider
    ) -> None:
        request = make_request()
        made = provider.create(request)
        held = json.dumps({"metadata": {"finalizers": ["test.example.com/held"]}})
        cluster.kubectl("patch", "pod", request.name, "-n", ready_namespace, "--type=merge", "-p", held)
        provider.delete(made.provider_id)
        provider.delete(made.provider_id)
        assert provider.get(made.provider_id).state is InstanceState.DELETING
        with pytest.raises(Unavailable, match="still being deleted") as refusal:
            provider.create(request)
        assert refusal.value.retry_after


def test_each_call_is_a_span(provider: KubernetesProvider, spans: InMemorySpanExporter) -> None:
    provider.list()
    (span,) = spans.get_finished_spans()
    assert span.name == "kubernetes GET"
    assert str((span.attributes or {})["path"]).endswith("/pods"), "without the query"

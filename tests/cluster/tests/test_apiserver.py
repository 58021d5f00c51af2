"""The API server that the tests of the cluster bridge run on."""

from __future__ import annotations

import pytest
import requests

from tests.cluster.cluster import Cluster, KubectlError

CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.test.proxyfleet.dev}
spec:
  group: test.proxyfleet.dev
  scope: Namespaced
  names: {kind: Lamp, plural: lamps, singular: lamp}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [room]
            properties: {room: {type: string, enum: [hall, attic]}, watts: {type: integer, default: 5}}
            x-kubernetes-validations:
            - {rule: "self.room == 'hall' || self.watts <= 10", message: an attic has no more than 10 watts}
            - {rule: "self.room == oldSelf.room", message: a lamp stays in its room}
          status: {type: object, properties: {phase: {type: string}}}
"""


@pytest.fixture(scope="module")
def lamps(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=CRD)
    cluster.kubectl("wait", "--for=condition=Established", "crd/lamps.test.proxyfleet.dev", "--timeout=30s")


def lamp(name: str, spec: str) -> str:
    return f"{{apiVersion: test.proxyfleet.dev/v1, kind: Lamp, metadata: {{name: {name}}}, spec: {spec}}}"


def apply(cluster: Cluster, namespace: str, manifest: str) -> str:
    return cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)


@pytest.mark.usefixtures("lamps")
def test_schema_and_rules_refuse(cluster: Cluster, namespace: str) -> None:
    apply(cluster, namespace, lamp("ceiling", "{room: hall, watts: 40}"))
    with pytest.raises(KubectlError, match="an attic has no more than 10 watts"):
        apply(cluster, namespace, lamp("bulb", "{room: attic, watts: 40}"))
    with pytest.raises(KubectlError, match=r'unknown field "spec.watt"'):
        apply(cluster, namespace, lamp("bulb", "{room: attic, watt: 4}"))
    with pytest.raises(KubectlError, match="a lamp stays in its room"):
        apply(cluster, namespace, lamp("ceiling", "{room: attic}"))


@pytest.mark.usefixtures("lamps")
def test_status_is_a_subresource_and_the_audit_log_counts_who_writes_it(cluster: Cluster, namespace: str) -> None:
    apply(cluster, namespace, lamp("ceiling", "{room: hall}"))
    cluster.kubectl("create", "serviceaccount", "electrician", "-n", namespace)
    electrician = cluster.service_account_kubeconfig(namespace, "electrician")
    mark = cluster.audit.mark()
    patch = ["patch", "lamp", "ceiling", "--subresource=status", "--type=merge", '-p={"status":{"phase":"On"}}']
    with pytest.raises(KubectlError, match="is forbidden"):
        cluster.kubectl(*patch, kubeconfig=electrician)
    cluster.kubectl(
        "create", "role", "electrician", "--verb=get,patch", "--resource=lamps,lamps/status", "-n", namespace
    )
    cluster.kubectl(
        "create",
        "rolebinding",
        "electrician",
        "--role=electrician",
        f"--serviceaccount={namespace}:electrician",
        "-n",
        namespace,
    )
    cluster.kubectl(*patch, kubeconfig=electrician)
    found = cluster.get("lamp", "ceiling", "-n", namespace)
    assert (found["spec"]["watts"], found["status"], found["metadata"]["generation"]) == (5, {"phase": "On"}, 1)
    user = f"system:serviceaccount:{namespace}:electrician"
    writes = cluster.audit.writes(mark, user=user, resource="lamps/status", namespace=namespace)
    assert [(write.verb, write.name, write.code) for write in writes] == [("patch", "ceiling", 200)]


def test_a_killed_api_server_comes_back_with_its_data(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "configmap", "kept", "-n", namespace)
    cluster.kill()
    with pytest.raises(KubectlError, match="refused"):
        cluster.kubectl("get", "configmap", "kept", "-n", namespace)
    cluster.start()
    assert cluster.get("configmap", "kept", "-n", namespace)["metadata"]["name"] == "kept"


def test_after_a_compaction_an_old_watch_is_410(cluster: Cluster, namespace: str) -> None:
    url = f"{cluster.url}/api/v1/namespaces/{namespace}/configmaps"
    with cluster.session() as api:
        seen = api.get(url).json()["metadata"]["resourceVersion"]

        def watch() -> requests.Response:
            return api.get(url, params={"watch": "true", "resourceVersion": seen, "timeoutSeconds": "1"}, timeout=30)

        assert '"code":410' not in watch().text
        cluster.compact()
        assert '"code":410' in watch().text


def test_a_namespace_ends_with_whatever_has_finalizers(cluster: Cluster, namespace: str) -> None:
    """Its end is judged by the fixture, which fails when it is still there."""
    cluster.kubectl("create", "configmap", "stuck", "-n", namespace)
    cluster.kubectl(
        "patch", "configmap", "stuck", "-n", namespace, '-p={"metadata":{"finalizers":["test.proxyfleet.dev/stuck"]}}'
    )

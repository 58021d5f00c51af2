"""From ``kubectl apply`` to a request through a Squid pod, and to the end of both; all processes are real."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme
import yaml

from proxyfleet.local.processes import wait_until
from tests.bridge.bridges import SYSTEM, install
from tests.cluster.cluster import Cluster
from tests.cluster.images import SQUID
from tests.cluster.namespaces import new_namespace
from tests.cluster.node import Node
from tests.node.product import Product

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

SECONDS = 180


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Nobody reads it."""


@dataclass(frozen=True)
class Site:
    """A page that proxies can fetch by TLS."""

    url: str
    ca: Path

    def fetch(self, proxy: str) -> str:
        return requests.get(self.url, proxies={"https": proxy}, verify=str(self.ca), timeout=10).text


@pytest.fixture(scope="module")
def site(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    authority = trustme.CA()
    ca = tmp_path_factory.mktemp("site") / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(node.address).configure_cert(context)
    with http.server.ThreadingHTTPServer((node.address, 0), Hello) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Site(f"https://{node.address}:{server.server_port}/", ca)
        server.shutdown()
        thread.join()


@dataclass(frozen=True)
class Fleet:
    """Proxies of one namespace, as a person with kubectl sees them, and the product behind."""

    cluster: Cluster
    namespace: str
    product: Product

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, "--namespace", self.namespace, stdin=stdin)

    def apply(self, name: str, **spec: Any) -> None:
        proxy = {"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": name}}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(proxy | {"spec": {"provider": "in-cluster", **spec}}))

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get("px", name, "-n", self.namespace).get("status", {})
        return found

    def await_ready(self, name: str, *, after: str = "") -> dict[str, Any]:
        """Its status once it is Ready on another instance than ``after``."""

        def is_ready() -> bool:
            status = self.status(name)
            return status.get("phase") == "Ready" and status["providerID"] != after

        assert wait_until(is_ready, SECONDS), (self.status(name), self.product.told())
        return self.status(name)

    def await_message(self, name: str, start: str, *, phase: str) -> None:
        def is_told() -> bool:
            status = self.status(name)
            return status.get("phase") == phase and status.get("message", "").startswith(start)

        assert wait_until(is_told, SECONDS), (self.status(name), self.product.told())

    def pods(self) -> list[str]:
        """The names of the pods that are there for the namespace's proxies."""
        pods = self.cluster.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/managed-by=proxyfleet")["items"]
        return [pod["metadata"]["name"] for pod in pods]


@pytest.fixture(scope="module")
def fleet(cluster: Cluster, node: Node, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    install(cluster)
    folder = tmp_path_factory.mktemp("product")
    in_cluster = {
        "kubeconfigFile": str(cluster.service_account_kubeconfig(SYSTEM, "proxyfleet-worker")),
        "namespace": SYSTEM,
        "image": SQUID,
        "allowPrivateTargets": [f"{node.address}/32"],
    }
    entry = {"name": "in-cluster", "type": "kubernetes", "kubernetes": in_cluster}
    (folder / "providers.yaml").write_text(yaml.safe_dump({"providers": [entry]}))
    with ExitStack() as stack:
        namespace = stack.enter_context(new_namespace(cluster))
        product = stack.enter_context(
            Product(
                folder,
                kubeconfig=cluster.service_account_kubeconfig(SYSTEM, "proxyfleet-sync"),
                PROVIDERS_CONFIG=str(folder / "providers.yaml"),
                PROXY_NAMESPACE=namespace,
                LEASE_NAMESPACE=SYSTEM,
                HEALTHCHECK_URL=site.url,
                PROBE_CA_FILE=str(site.ca),
                PROVIDER_CHECK_INTERVAL="2",
            )
        )
        yield Fleet(cluster, namespace, product)


def test_a_pod_serves_from_apply_to_delete(fleet: Fleet, site: Site) -> None:
    fleet.apply("quick", attributes={"geo": "local"})
    ready = fleet.await_ready("quick")
    [pod] = fleet.pods()
    assert ready["providerID"].startswith(f"in-cluster://{SYSTEM}/{pod}/")

    lease = fleet.product.call("POST", "leases", {"selector": {"geo": "local"}, "ttlSeconds": 300})
    url = lease["proxy"]["url"]
    assert url == f"http://{ready['ip']}:3128"
    assert site.fetch(url) == "hello"
    fleet.product.call("DELETE", f"leases/{lease['leaseID']}")

    fleet.cluster.kubectl("delete", "pod", pod, "-n", SYSTEM)
    again = fleet.await_ready("quick", after=ready["providerID"])
    assert site.fetch(f"http://{again['ip']}:3128") == "hello"
    assert fleet.pods() == [pod], "the name is the instance's"

    fleet.kubectl("delete", "px", "quick", f"--timeout={SECONDS}s")
    assert fleet.pods() == []


def test_a_bad_image_is_told_on_the_proxy(fleet: Fleet) -> None:
    fleet.apply("broken", placement={"image": "registry.invalid/no-such-squid:1"})
    fleet.await_message("broken", "ImagePullBackOff: Back-off pulling image", phase="Provisioning")
    fleet.kubectl("delete", "px", "broken", f"--timeout={SECONDS}s")
    assert fleet.pods() == []


def test_what_a_pod_can_not_do_fails_the_proxy_by_the_fields_name(fleet: Fleet) -> None:
    fleet.apply("sized", placement={"machineType": "large"})
    fleet.apply("initialised", cloudInit={"inline": "#cloud-config"})
    fleet.await_message("sized", "placement.machineType: ", phase="Failed")
    fleet.await_message("initialised", "cloudInit: ", phase="Failed")
    fleet.kubectl("delete", "px", "sized", "initialised", f"--timeout={SECONDS}s")


def test_the_entry_is_reported_healthy(fleet: Fleet) -> None:
    def verdict() -> list[tuple[str, str]]:
        found = fleet.cluster.get("ph", "in-cluster").get("status", {})
        return [(condition["status"], condition["reason"]) for condition in found.get("conditions", ())]

    assert wait_until(lambda: verdict() == [("True", "Healthy")], SECONDS)
    [target] = fleet.cluster.get("ph", "in-cluster")["status"]["targets"]
    assert (target["name"], target["ready"]) == (SYSTEM, True)

"""deploy/ as it runs: the whole product as pods, from `kubectl apply` to a request through a proxy that it made."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import requests
import yaml

from proxyfleet.local.addresses import Address
from proxyfleet.local.processes import wait_until
from tests.bridge.bridges import SYSTEM, install
from tests.cluster.cluster import Cluster
from tests.cluster.namespaces import new_namespace
from tests.cluster.node import Node
from tests.deploy.manifests import DEPLOY
from tests.forwarding import forwarding
from tests.node.deployed import Deployed

pytestmark = [pytest.mark.node, pytest.mark.timeout(1200)]

SECONDS = 300
PRODUCT = ("web", "worker", "beat", "sync", "flower")


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Nobody reads it."""


@pytest.fixture(scope="module")
def origin(node: Node) -> Iterator[str]:
    """A page that proxies can fetch."""
    with http.server.ThreadingHTTPServer((node.address, 0), Hello) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{node.address}:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def deployed(cluster: Cluster, node: Node, origin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    install(cluster)
    # As `make dev-secret` does.
    password = "of-the-tests"
    secret = {
        "postgres-password": password,
        "secret-key": "x" * 64,
        "database-url": f"postgres://proxyfleet:{password}@postgres/proxyfleet",
        "broker-url": "redis://valkey/0",
    }
    literals = [f"--from-literal={key}={value}" for key, value in secret.items()]
    cluster.kubectl("create", "secret", "generic", "proxyfleet", "-n", SYSTEM, *literals)
    port = Address.parse(cluster.url.removeprefix("https://"))
    with ExitStack() as stack:
        api = stack.enter_context(forwarding(port, host=node.address))
        product = Deployed(cluster, tmp_path_factory.mktemp("deployed"), api=api, probed=origin)
        stack.callback(cluster.kubectl, "delete", "secret", "proxyfleet", "-n", SYSTEM)
        product.apply({})
        stack.callback(_undeploy, product)
        try:
            product.await_rollout("statefulset/postgres", "deployment/valkey")
            product.apply({"postgres": product.address("postgres"), "valkey": product.address("valkey")})
            product.await_rollout(*(f"deployment/{name}" for name in PRODUCT))
        except Exception:
            print(product.told())  # noqa: T201  for whoever reads the failure
            raise
        yield product


def _undeploy(product: Deployed) -> None:
    """The accounts stay: others of this session are theirs."""
    product.kubectl("delete", "deployments,statefulsets,services,pdb,networkpolicies,configmaps", "--all")
    product.kubectl("wait", "--for=delete", "pod", "--all", "--timeout=180s")


@pytest.fixture
def proxies(deployed: Deployed) -> Iterator[str]:
    with new_namespace(deployed.cluster) as namespace:
        yield namespace
        deployed.cluster.kubectl("delete", "px", "--all", "-n", namespace, f"--timeout={SECONDS}s")


def status(deployed: Deployed, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = deployed.cluster.get("px", name, "-n", namespace).get("status", {})
    return found


def test_the_sample_goes_from_apply_through_a_request_to_delete(deployed: Deployed, proxies: str, origin: str) -> None:
    cluster = deployed.cluster
    cluster.kubectl("apply", "-n", proxies, "-f", str(DEPLOY / "samples" / "proxy_kubernetes.yaml"))
    name = "proxy-kubernetes-sample"
    ready = wait_until(lambda: status(deployed, proxies, name).get("phase") == "Ready", SECONDS)
    assert ready, (status(deployed, proxies, name), deployed.told())

    lease = deployed.call("POST", "leases", {"selector": {"geo": "local"}, "ttlSeconds": 300})
    assert lease["proxy"]["id"] == f"{proxies}/{name}"
    assert requests.get(origin, proxies={"http": lease["proxy"]["url"]}, timeout=30).text == "hello"
    deployed.call("DELETE", f"leases/{lease['leaseID']}")

    cluster.kubectl("delete", "px", name, "-n", proxies, f"--timeout={SECONDS}s")
    made = cluster.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/managed-by=proxyfleet")["items"]
    assert made == []


def test_no_process_complains(deployed: Deployed) -> None:
    for name in PRODUCT:
        [pod] = deployed.pods(name)
        [container] = pod["status"]["containerStatuses"]
        told = deployed.kubectl("logs", pod["metadata"]["name"], "--all-containers")
        assert container["restartCount"] == 0, (name, container["lastState"], told)
        assert "Traceback" not in told, (name, told)


def test_it_says_that_the_api_is_open_while_there_is_no_token(deployed: Deployed) -> None:
    assert "open" in deployed.kubectl("logs", "deployment/web")


def test_a_lease_outlives_new_pods_of_every_process(deployed: Deployed, proxies: str) -> None:
    proxy = yaml.safe_load((DEPLOY / "samples" / "proxy_kubernetes.yaml").read_text())
    proxy["metadata"]["name"] = "steady"
    deployed.cluster.kubectl("apply", "-n", proxies, "-f", "-", stdin=yaml.safe_dump(proxy))
    ready = wait_until(lambda: status(deployed, proxies, "steady").get("phase") == "Ready", SECONDS)
    assert ready, (status(deployed, proxies, "steady"), deployed.told())
    before = status(deployed, proxies, "steady")
    lease = deployed.call("POST", "leases", {"selector": {"geo": "local"}, "ttlSeconds": 3600})

    deployed.kubectl("rollout", "restart", *(f"deployment/{name}" for name in ("web", "worker", "beat", "sync")))
    deployed.await_rollout(*(f"deployment/{name}" for name in ("web", "worker", "beat", "sync")))
    assert deployed.call("GET", f"leases/{lease['leaseID']}")["leaseID"] == lease["leaseID"]
    assert status(deployed, proxies, "steady")["providerID"] == before["providerID"]

    # A change that is made now is carried out by the new ones.
    deployed.cluster.kubectl(
        "patch", "px", "steady", "-n", proxies, "--type=merge", "-p", '{"spec": {"port": 3333, "drainSeconds": 0}}'
    )

    def is_replaced() -> bool:
        now = status(deployed, proxies, "steady")
        return now.get("phase") == "Ready" and now["port"] == 3333

    assert wait_until(is_replaced, SECONDS), (status(deployed, proxies, "steady"), deployed.told())

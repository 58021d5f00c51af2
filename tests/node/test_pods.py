"""The node itself: a pod that others can reach, and its end."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest
import requests

from tests.cluster.cluster import Cluster
from tests.cluster.images import SQUID
from tests.cluster.node import Node

pytestmark = pytest.mark.node

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "squid"},
    "spec": {
        "terminationGracePeriodSeconds": 3,
        "securityContext": {"runAsUser": 13, "runAsGroup": 13, "runAsNonRoot": True},
        "containers": [
            {
                "name": "squid",
                "image": SQUID,
                "imagePullPolicy": "Never",
                "readinessProbe": {"tcpSocket": {"port": 3128}, "periodSeconds": 1},
                "resources": {"limits": {"memory": "256Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    },
}


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Nobody reads it."""


@pytest.fixture
def origin(node: Node) -> Iterator[str]:
    """The URL of a page that pods can fetch."""
    with http.server.ThreadingHTTPServer((node.address, 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{node.address}:{server.server_port}/"
        server.shutdown()


def test_a_request_goes_through_squid_in_a_pod(cluster: Cluster, namespace: str, origin: str) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(POD))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/squid", "-n", namespace, "--timeout=60s")
    address = cluster.get("pod", "squid", "-n", namespace)["status"]["podIP"]
    assert requests.get(origin, proxies={"http": f"http://{address}:3128"}, timeout=10).text == "hello"
    assert "hello" not in cluster.kubectl("logs", "squid", "-n", namespace)
    cluster.kubectl("delete", "pod", "squid", "-n", namespace, "--timeout=60s")
    assert cluster.get("pods", "-n", namespace)["items"] == []

"""A node's part, played through the API: for a server that has no node.

Binds pods to a node that does not exist, reports them as running on addresses of their own, and lets go of those that
are being deleted. tests/node/ has a real one.
"""

from __future__ import annotations

import itertools
import threading
from types import TracebackType
from typing import Any, Self

import requests

from tests.cluster.cluster import Cluster

POLL_SECONDS = 0.05
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}


class Kubelet:
    """Of one namespace, as long as a ``with`` block."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._api = cluster.session()
        self._pods = f"{cluster.url}/api/v1/namespaces/{namespace}/pods"
        self._addresses = itertools.count(1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._api.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(POLL_SECONDS):
                for pod in self._ask("GET", self._pods)["items"]:
                    self._sync(pod)
        except Exception as failure:  # noqa: BLE001 - raised again in the test's own thread
            self._failure = failure

    def _sync(self, pod: dict[str, Any]) -> None:
        url = f"{self._pods}/{pod['metadata']['name']}"
        if pod["metadata"].get("deletionTimestamp"):
            self._ask("DELETE", url, json={"gracePeriodSeconds": 0})
        elif "nodeName" not in pod["spec"]:
            target = {"apiVersion": "v1", "kind": "Node", "name": "no-such-node"}
            self._ask("POST", f"{url}/binding", json={"metadata": {"name": pod["metadata"]["name"]}, "target": target})
        elif pod["status"]["phase"] == "Pending":
            number = next(self._addresses)
            running = {"name": "squid", "ready": True, "started": True, "restartCount": 0, "image": "", "imageID": ""}
            status = {
                "phase": "Running",
                "podIPs": [{"ip": f"10.244.{number >> 8}.{number & 255}"}],
                "podIP": f"10.244.{number >> 8}.{number & 255}",
                "containerStatuses": [{**running, "state": {"running": {}}}],
            }
            self._ask("PATCH", f"{url}/status", json={"status": status}, headers=MERGE_PATCH)

    def _ask(self, method: str, url: str, **arguments: Any) -> dict[str, Any]:
        answer = self._api.request(method, url, timeout=30, **arguments)
        if answer.status_code not in (requests.codes.not_found, requests.codes.conflict):  # it went meanwhile
            answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

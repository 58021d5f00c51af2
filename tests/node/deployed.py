"""deploy/overlays/dev on the node of the tests, as near to what it says as a node without a registry and DNS allows.

What is changed: the image; PostgreSQL and Valkey come from it as well; a node has no volumes to claim, no DNS and
nothing that makes the addresses of Services reachable, so pods learn those of one another from their hosts file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
import yaml

from proxyfleet.local.addresses import Address
from tests.bridge.bridges import SYSTEM
from tests.cluster.cluster import Cluster
from tests.cluster.images import SQUID
from tests.cluster.product import PRODUCT
from tests.deploy.manifests import DEPLOY

POSTGRES = """\
set -eu
export PGDATA=/var/lib/postgresql/data
printf %s "$POSTGRES_PASSWORD" > /tmp/password
initdb --username "$POSTGRES_USER" --pwfile /tmp/password --auth scram-sha-256 --encoding UTF8 --no-sync > /dev/null
echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D $PGDATA postgres > /dev/null
echo "host all all all scram-sha-256" >> $PGDATA/pg_hba.conf
exec postgres -c listen_addresses=* -c unix_socket_directories=/tmp -c fsync=off
"""
PRODUCT_PODS = {"kind": "Deployment", "name": "web|worker|beat|sync|flower"}
API_SERVER = "kubernetes.default.svc"
"""A name that its certificate has."""


class Deployed:
    """The namespace of the product in ``cluster``, whose API server pods reach at ``api``."""

    def __init__(self, cluster: Cluster, folder: Path, *, api: Address, probed: str) -> None:
        self.cluster = cluster
        self._folder = folder.resolve()
        self._api = api
        self._probed = probed

    def apply(self, hosts: Mapping[str, str]) -> None:
        """Or apply again, when more ``hosts`` (by name) are known."""
        base = os.path.relpath(DEPLOY / "overlays" / "dev", self._folder)
        squid = {"image": SQUID, "allowPrivateTargets": [f"{self._api.host}/32"]}
        entry = {"name": "in-cluster", "type": "kubernetes", "kubernetes": squid}
        (self._folder / "providers.yaml").write_text(yaml.safe_dump({"providers": [entry]}))
        kustomization = {
            "resources": [base],
            "namespace": SYSTEM,
            "images": [
                {"name": name, "newName": PRODUCT.partition(":")[0], "newTag": PRODUCT.partition(":")[2]}
                for name in ("proxyfleet", "postgres", "valkey/valkey")
            ],
            "configMapGenerator": [
                {
                    "name": "settings",
                    "behavior": "merge",
                    "literals": [
                        f"PROXYFLEET_HEALTHCHECK_URL={self._probed}",
                        "PROXYFLEET_PROVIDER_CHECK_INTERVAL=5",
                        "PROXYFLEET_WORKER_CONCURRENCY=2",
                    ],
                },
                {"name": "providers-config", "behavior": "replace", "files": ["providers.yaml"]},
            ],
            "patches": [_patch(PRODUCT_PODS, *self._reach(hosts)), *_servers()],
        }
        (self._folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        rendered = self.cluster.kubectl("kustomize", str(self._folder))
        self.cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=rendered)

    def _reach(self, hosts: Mapping[str, str]) -> list[dict[str, Any]]:
        known = {API_SERVER: self._api.host, **hosts}
        aliases = [{"ip": ip, "hostnames": [name]} for name, ip in known.items()]
        service = {"KUBERNETES_SERVICE_HOST": API_SERVER, "KUBERNETES_SERVICE_PORT": str(self._api.port)}
        return [
            {"op": "add", "path": "/spec/template/spec/hostAliases", "value": aliases},
            *(
                {"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": name, "value": value}}
                for name, value in service.items()
            ),
        ]

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("--namespace", SYSTEM, *arguments)

    def pods(self, component: str) -> list[dict[str, Any]]:
        """Those that are not on their way out."""
        found = self.cluster.get("pods", "-n", SYSTEM, "-l", f"app.kubernetes.io/component={component}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def address(self, component: str) -> str:
        """That of its only pod."""
        [pod] = self.pods(component)
        address: str = pod["status"]["podIP"]
        return address

    def await_rollout(self, *workloads: str, seconds: int = 400) -> None:
        for workload in workloads:
            self.kubectl("rollout", "status", workload, f"--timeout={seconds}s")

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The API's answer, asked of a web pod as a Service would. Raises requests.HTTPError when it refuses."""
        url = f"http://{self.address('web')}:8090/v1/{path}"
        answer = requests.request(method, url, json=body, headers={"Host": "proxyfleet"}, timeout=30)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def told(self) -> str:
        """Why something does not come up, for whoever reads a failure."""
        pods = self.kubectl("get", "pods", "-o", "wide")
        names = [pod["metadata"]["name"] for pod in self.cluster.get("pods", "-n", SYSTEM)["items"]]
        logs = [self.kubectl("logs", name, "--all-containers", "--tail=30", "--ignore-errors") for name in names]
        events = self.kubectl("get", "events", "--sort-by=.lastTimestamp")
        return "\n".join([pods, *(f"--- {name}\n{log}" for name, log in zip(names, logs, strict=True)), events[-4000:]])


def _patch(target: Mapping[str, str], *operations: Mapping[str, Any]) -> dict[str, Any]:
    return {"target": dict(target), "patch": json.dumps(operations)}


def _servers() -> list[dict[str, Any]]:
    command = "/spec/template/spec/containers/0/command"
    volume = {"name": "data", "emptyDir": {}}
    return [
        _patch(
            {"kind": "StatefulSet", "name": "postgres"},
            {"op": "add", "path": command, "value": ["sh", "-c", POSTGRES]},
            {"op": "remove", "path": "/spec/volumeClaimTemplates"},
            {"op": "add", "path": "/spec/template/spec/volumes/-", "value": volume},
        ),
    ]

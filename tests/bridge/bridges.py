"""Bridges of the tests: by the ServiceAccounts of deploy/rbac, as threads or as processes of their own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from django.utils import timezone

from k8s_sync.bridge import Bridge
from k8s_sync.client import connect
from k8s_sync.leader import Leader
from k8s_sync.rights import Rights, needed
from k8s_sync.term import Term
from leasing.tests.processes import environment
from proxyfleet.local.addresses import Address, free_port
from proxyfleet.local.processes import wait_until
from tests.cluster.cluster import Cluster

ROOT = Path(__file__).parent.parent.parent
SYSTEM = "proxyfleet-system"
"""The namespace of deploy/rbac."""


def user(account: str) -> str:
    """The name in the audit log."""
    return f"system:serviceaccount:{SYSTEM}:{account}"


def install(cluster: Cluster) -> None:
    """As docs/kubernetes.md says."""
    cluster.kubectl("apply", "-f", str(ROOT / "deploy" / "namespace.yaml"))
    for part in ("crd", "rbac"):
        cluster.kubectl("apply", "-k", str(ROOT / "deploy" / part))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")


def add_account(cluster: Cluster, name: str, *, namespace: str | None = None) -> None:
    """Another ServiceAccount that may do what the bridge's may, with proxies of ``namespace`` alone if given."""
    cluster.kubectl("create", "serviceaccount", name, "--namespace", SYSTEM)
    here = ("rolebinding", "--namespace", namespace) if namespace else ("clusterrolebinding",)
    bindings = {
        "--clusterrole=proxyfleet-sync": here,
        "--clusterrole=proxyfleet-sync-cluster": ("clusterrolebinding",),
        "--role=proxyfleet-sync": ("rolebinding", "--namespace", SYSTEM),
    }
    for role, (binding, *where) in bindings.items():
        label = f"{name}-{role.rpartition('=')[2]}"
        cluster.kubectl("create", binding, label, role, f"--serviceaccount={SYSTEM}:{name}", *where)


@contextmanager
def running(
    cluster: Cluster,
    namespace: str,
    account: str = "proxyfleet-sync",
    *,
    fleet_id: str = "proxyfleet",
    lease_namespace: str = SYSTEM,
    **types: str,
) -> Iterator[Bridge]:
    """A bridge for one namespace in threads of this process, which leads; ``types`` has the provider entries.

    Raises what it failed of.
    """
    kubeconfig = cluster.service_account_kubeconfig(SYSTEM, account)
    access, identity = connect(kubeconfig), f"{account}_{time.monotonic_ns()}"
    leader = Leader(access, namespace=lease_namespace, identity=identity, fleet_id=fleet_id)
    rights = Rights(access, needed(namespace=namespace, lease_namespace=lease_namespace))
    api = connect(kubeconfig, before_write=leader.check_write)

    def new_term() -> Term:
        return Term(
            api,
            identity=leader.identity,
            fleet_id=fleet_id,
            namespace=namespace,
            provider_types=types,
            clock=timezone.now,
        )

    bridge = Bridge(leader, rights, new_term, clock=timezone.now)
    failures: list[Exception] = []
    thread = threading.Thread(target=_run, args=(bridge, failures), name="bridge")
    thread.start()
    try:
        assert wait_until(lambda: bool(failures) or (leader.leads() and not bridge.problem()), 40), bridge.problem()
        if not failures:
            yield bridge
    finally:
        bridge.stop()
        thread.join()
        if failures:
            raise failures[0]


def _run(bridge: Bridge, failures: list[Exception]) -> None:
    try:
        bridge.run()
    except Exception as error:  # noqa: BLE001  told to the test
        failures.append(error)


class BridgeProcess:
    """``manage.py k8s_sync``."""

    def __init__(self, cluster: Cluster, namespace: str, account: str) -> None:
        self.address = Address("127.0.0.1", free_port())
        variables = {
            "KUBECONFIG": str(cluster.service_account_kubeconfig(SYSTEM, account)),
            "PROXYFLEET_CLUSTER_SYNC": "true",
            "PROXYFLEET_PROXY_NAMESPACE": namespace,
            "PROXYFLEET_LEASE_NAMESPACE": SYSTEM,
            "PROXYFLEET_SYNC_ADDR": str(self.address),
        }
        command = [sys.executable, "manage.py", "k8s_sync"]
        self.process = subprocess.Popen(command, cwd=ROOT, env={**environment(), **variables})

    def is_ready(self) -> bool:
        try:
            return requests.get(f"{self.address.local_url}/readyz", timeout=5).ok
        except requests.ConnectionError:
            return False

    def metrics(self) -> str:
        return requests.get(f"{self.address.local_url}/metrics", timeout=30).text

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)

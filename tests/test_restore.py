"""A backup of a running fleet is restored into a new database, and the fleet goes on: docs/operating.md."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxyfleet.local.postgres import binary_folder
from proxyfleet.local.processes import wait_until
from proxyfleet.local.servers import LocalServers
from tests.bridge.bridges import SYSTEM, install
from tests.cluster.cluster import Cluster
from tests.node.product import Product

pytestmark = pytest.mark.timeout(900)

SECONDS = 240


class Fleet:
    """Proxies of one namespace of a cluster, which are processes of this machine."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._folder = folder
        (folder / "providers.yaml").write_text(
            yaml.safe_dump({"providers": [{"name": "here", "type": "process", "process": {}}]})
        )

    def product(self, database: str, broker: str) -> Product:
        return Product(
            self._folder,
            kubeconfig=self._cluster.service_account_kubeconfig(SYSTEM, "proxyfleet-sync"),
            DATABASE_URL=database,
            BROKER_URL=broker,
            PROVIDERS_CONFIG=str(self._folder / "providers.yaml"),
            PROXY_NAMESPACE=self._namespace,
            LEASE_NAMESPACE=SYSTEM,
            GC_ALLOW_NAMESPACED="true",
            GC_INTERVAL="2",
            GC_MIN_AGE="0",
        )

    def apply(self, name: str, **spec: Any) -> None:
        proxy = {"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": name}}
        spec = {"provider": "here", "attributes": {"name": name}, **spec}
        self._cluster.kubectl("apply", "-n", self._namespace, "-f", "-", stdin=json.dumps(proxy | {"spec": spec}))

    def delete(self, name: str) -> None:
        self._cluster.kubectl("delete", "px", name, "-n", self._namespace, f"--timeout={SECONDS}s")

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._cluster.get("px", name, "-n", self._namespace).get("status", {})
        return found

    def await_ready(self, product: Product, name: str, **wanted: Any) -> dict[str, Any]:
        def is_ready() -> bool:
            return (wanted | {"phase": "Ready"}).items() <= self.status(name).items()

        assert wait_until(is_ready, SECONDS), (self.status(name), product.told())
        return self.status(name)


@pytest.fixture
def fleet(cluster: Cluster, namespace: str, tmp_path: Path) -> Fleet:
    install(cluster)
    return Fleet(cluster, namespace, tmp_path)


@contextmanager
def servers(folder: Path) -> Iterator[LocalServers]:
    with LocalServers(folder, throwaway=True) as running:
        yield running


def postgres(program: str, *arguments: str) -> None:
    done = subprocess.run(
        [str(binary_folder() / program), *arguments], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr


def test_leases_claims_and_the_cluster_go_on_from_a_restored_backup(fleet: Fleet, tmp_path: Path) -> None:
    with servers(tmp_path / "servers") as running:
        database, backup = running.database_url, str(tmp_path / "fleet.dump")
        with fleet.product(database, running.broker_url) as product:
            fleet.apply("steady")
            fleet.apply("deleted-later")
            steady = fleet.await_ready(product, "steady")
            fleet.await_ready(product, "deleted-later")
            lease = product.call("POST", "leases", {"selector": {"name": "steady"}, "ttlSeconds": 3600})

            postgres("pg_dump", "--format=custom", f"--file={backup}", database)

            fleet.apply("declared-later")
            later = fleet.await_ready(product, "declared-later")
            fleet.delete("deleted-later")
            lost = product.call("POST", "leases", {"selector": {"name": "declared-later"}, "ttlSeconds": 3600})
            product.kill()

        restored = f"{database.rpartition('/')[0]}/restored"
        postgres("createdb", f"--maintenance-db={database}", "restored")
        postgres("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={restored}", backup)

        with fleet.product(restored, running.broker_url) as product:
            assert product.call("GET", f"leases/{lease['leaseID']}")["proxy"]["id"] == lease["proxy"]["id"]
            assert fleet.await_ready(product, "steady")["providerID"] == steady["providerID"]

            # Declared after the backup: the cluster has it still, and its instance is found by its name.
            def is_known() -> bool:
                listed = product.call("GET", "proxies?selector=name=declared-later")["items"]
                return [proxy["phase"] for proxy in listed] == ["Ready"]

            assert wait_until(is_known, SECONDS), product.told()
            assert fleet.await_ready(product, "declared-later")["providerID"] == later["providerID"]

            # Deleted after the backup: it goes once more.
            def is_gone() -> bool:
                listed: list[object] = product.call("GET", "proxies?selector=name=deleted-later")["items"]
                return listed == []

            assert wait_until(is_gone, SECONDS), product.told()

            # A lease given after the backup is not known any more: its crawler leases again.
            with pytest.raises(Exception, match="404"):
                product.call("GET", f"leases/{lost['leaseID']}")
            assert product.call("POST", "leases", {"selector": {"name": "declared-later"}})["leaseID"]

            # What changes from now on is carried out and published.
            fleet.apply("steady", port=3333)
            assert fleet.await_ready(product, "steady", port=3333)["providerID"] != steady["providerID"]
            for name in ("steady", "declared-later"):
                fleet.delete(name)

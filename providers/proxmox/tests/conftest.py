from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from providers.blocks import ProxmoxBlock
from providers.instances import InstanceRequest, Placement
from providers.proxmox.driver import ProxmoxProvider
from providers.proxmox.tests.standin.cluster import TEMPLATE, TOKEN, Cluster
from providers.proxmox.tests.standin.server import PveServer
from providers.tests.contract import FLEET, make_request

Open = Callable[..., ProxmoxProvider]


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster("pve1")


@pytest.fixture
def server(cluster: Cluster, authority: trustme.CA) -> Iterator[PveServer]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with PveServer(cluster, tls) as server:
        yield server


@pytest.fixture
def open_provider(server: PveServer, authority: trustme.CA, tmp_path: Path) -> Open:
    """An entry as a new worker has it; ``changes`` are keys of its block."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "token").write_text(f"{TOKEN}\n")

    def open_provider(*, entry: str = "pve", fleet_id: str = FLEET, **changes: object) -> ProxmoxProvider:
        block = {
            "url": server.url,
            "tokenFile": tmp_path / "token",
            "caFile": tmp_path / "ca.pem",
            "nodes": list(server.cluster.nodes),
            "isoStorage": "local",
            "templates": {"debian-13": {"vmid": TEMPLATE, "node": server.cluster.nodes[0]}},
            "machineTypes": {"small": {"cores": 1, "memoryMb": 1024}},
            "storage": "local-lvm",
            "requestTimeoutSeconds": 5,
        }
        return ProxmoxProvider(
            entry=entry, block=ProxmoxBlock.model_validate(block | changes), fleet_id=fleet_id, state_dir=tmp_path
        )

    return open_provider


@pytest.fixture
def provider(open_provider: Open) -> ProxmoxProvider:
    return open_provider()


def new_request(
    *, fleet_id: str = FLEET, user_data: bytes | None = None, zone: str = "", port: int = 3128
) -> InstanceRequest:
    request = make_request(fleet_id=fleet_id, port=port, user_data=user_data)
    placement = Placement(zone=zone, machine_type="small", image="debian-13")
    return InstanceRequest(request.identity, request.port, placement, user_data)

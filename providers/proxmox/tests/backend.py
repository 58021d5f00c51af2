"""The PVE stand-in as a backend that fails on command, for the fleet's random schedules."""

from __future__ import annotations

import atexit
import ssl
import tempfile
from functools import cache
from pathlib import Path
from typing import ClassVar

import trustme

from providers.base import BehaviourProfile, Provider
from providers.blocks import ProxmoxBlock
from providers.instances import Instance, InstanceRequest
from providers.proxmox.driver import ProxmoxProvider
from providers.proxmox.mapping import read_record, state_of
from providers.proxmox.tests.standin.cluster import TEMPLATE, TOKEN, Cluster, Guest
from providers.proxmox.tests.standin.server import PveServer
from providers.tests.backend import Backend, Clock, Life


@cache
def _secrets() -> tuple[Path, ssl.SSLContext]:
    """One authority for all schedules: a key takes longer to make than a schedule."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    path = Path(folder.name)
    authority.cert_pem.write_to_path(path / "ca.pem")
    (path / "token").write_text(TOKEN)
    return path, tls


class PveBackend(Backend):
    """A cluster of one node behind a server of its own; entries share it."""

    profile: ClassVar[BehaviourProfile] = ProxmoxProvider.profile
    placement: ClassVar[dict[str, str]] = {"machineType": "small", "image": "debian-13"}
    zone: ClassVar[str] = "pve1"

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.cluster = _LivingCluster(self, clock)
        self.unreachable_zones = self.cluster.offline
        self.ports: dict[str, int] = {}
        """By name: what a proxy listens on is known to its cloud-init alone."""
        self._folder, tls = _secrets()
        self.server = PveServer(self.cluster, tls)
        self.server.__enter__()

    def close(self) -> None:
        self.server.__exit__()

    def open(self, entry: str, *, fleet_id: str) -> Provider:
        block = ProxmoxBlock.model_validate(
            {
                "url": self.server.url,
                "tokenFile": self._folder / "token",
                "caFile": self._folder / "ca.pem",
                "nodes": [self.zone],
                "isoStorage": "local",
                "templates": {"debian-13": {"vmid": TEMPLATE}},
                "machineTypes": {"small": {}},
            }
        )
        return _NotingProvider(self.ports, entry=entry, block=block, fleet_id=fleet_id)

    def machines(self) -> tuple[Instance, ...]:
        with self.cluster.lock:
            return tuple(found for guest in self.cluster.guests.values() if (found := self._instance(guest)))

    def vanish(self, provider_id: str) -> None:
        del self.cluster.guests[self._guest(provider_id).vmid]

    def stop(self, provider_id: str) -> None:
        self._guest(provider_id).status = "stopped"

    def fail(self, provider_id: str, message: str) -> None:
        guest = self._guest(provider_id)
        guest.status, guest.qmpstatus = "running", "io-error"

    def recover(self) -> None:
        super().recover()
        for guest in self.cluster.guests.values():
            guest.agent_refusals = 0

    def _instance(self, guest: Guest) -> Instance | None:
        record = read_record(guest.config)
        if record is None:
            return None
        return Instance(
            provider_id=f"{record.entry}://{record.node}/{guest.vmid}/{record.uid}",
            identity=record.identity,
            state=state_of({"status": guest.status, "qmpstatus": guest.qmpstatus, "lock": guest.config.get("lock")}),
            created_at=record.created_at,
            address=guest.addresses[0] if guest.status == "running" else None,
            port=self.ports[record.identity.instance_name],
        )

    def _guest(self, provider_id: str) -> Guest:
        return self.cluster.guests[int(provider_id.split("/")[3])]


class _NotingProvider(ProxmoxProvider):
    """Notes which port each request asks for."""

    def __init__(self, ports: dict[str, int], *, entry: str, block: ProxmoxBlock, fleet_id: str) -> None:
        super().__init__(entry=entry, block=block, fleet_id=fleet_id, state_dir=Path())
        self._ports = ports

    def create(self, request: InstanceRequest) -> Instance:
        self._ports[request.name] = request.port
        return super().create(request)


class _LivingCluster(Cluster):
    """Gives each guest that starts the life that is queued for it."""

    def __init__(self, backend: PveBackend, clock: Clock) -> None:
        super().__init__("pve1", clock=clock)
        self._backend = backend

    def start(self, token: str, node: str, vmid: str, timeout: str = "") -> str:
        upid = super().start(token, node, vmid, timeout)
        guest = self.guest(node, vmid)
        life = self._backend.lives.popleft() if self._backend.lives else Life()
        guest.agent_refusals = life.provisioning_gets + life.addressless_gets
        if life.fails:
            guest.qmpstatus = "guest-panicked"
        return upid

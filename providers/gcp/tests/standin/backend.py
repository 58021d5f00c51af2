"""The stand-in as a backend that the fleet's tests can break."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch
from uuid import UUID

from providers.base import Provider
from providers.blocks import GcpBlock
from providers.gcp.driver import GcpProvider
from providers.gcp.mapping import STATES
from providers.gcp.tests.standin.accounts import shared_account
from providers.gcp.tests.standin.resources import Machine
from providers.gcp.tests.standin.rules import PROJECT, ZONES
from providers.gcp.tests.standin.server import ComputeServer
from providers.instances import Identity, Instance
from providers.profiles import PROFILES
from providers.tests.backend import Backend, Clock, Life


def utc_now() -> datetime:
    return datetime.now(UTC)


class GceBackend(Backend):
    """A server of its own, and the environment of a worker that may use it."""

    profile = PROFILES["gcp"]
    zone = ZONES[0]
    placement = {  # noqa: RUF012  the base class says ClassVar
        "zone": zone,
        "machineType": "e2-small",
        "image": "projects/debian-cloud/global/images/family/debian-12",
    }

    def __init__(self, clock: Clock = utc_now) -> None:
        super().__init__()
        self.clock = clock
        account, key = shared_account()
        self._folder = TemporaryDirectory()
        self.key_file = Path(self._folder.name, "key.json")
        self.key_file.write_text(key)
        self._environment = patch.dict(
            os.environ, {"GOOGLE_APPLICATION_CREDENTIALS": str(self.key_file), "NO_GCE_CHECK": "true"}
        )
        self._environment.start()
        self.server = ComputeServer(clock, account)
        self.cloud = self.server.cloud
        self.cloud.lives, self.cloud.unreachable = self.lives, self.unreachable_zones

    def open(self, entry: str, *, fleet_id: str) -> Provider:
        return self.driver(entry, fleet_id=fleet_id)

    def driver(self, entry: str = "gcp-eu", *, fleet_id: str, project: str = PROJECT, **block: object) -> GcpProvider:
        return GcpProvider(
            entry=entry,
            block=GcpBlock.model_validate({"project": project} | block),
            fleet_id=fleet_id,
            state_dir=Path(self._folder.name),
            endpoint=self.server.url,
            clock=self.clock,
        )

    def machines(self) -> tuple[Instance, ...]:
        return tuple(_as_instance(machine) for machine in self.cloud.machines)

    def vanish(self, provider_id: str) -> None:
        self.cloud.vanish(_number(provider_id))

    def stop(self, provider_id: str) -> None:
        self.cloud.stop(_number(provider_id))

    def fail(self, provider_id: str, message: str) -> None:
        self.cloud.stop(_number(provider_id), message=message)

    def recover(self) -> None:
        super().recover()
        self.server.faults.clear()
        for machine in self.cloud.machines:
            machine.life = Life()

    def close(self) -> None:
        self.server.close()
        self._environment.stop()
        self._folder.cleanup()


def _number(provider_id: str) -> int:
    return int(provider_id.rpartition("/")[2])


def _as_instance(machine: Machine) -> Instance:
    """By what the insert said, in the stand-in's own reading."""
    labels = machine.body["labels"]
    metadata = {item["key"]: item["value"] for item in machine.body["metadata"]["items"]}
    return Instance(
        provider_id=f"{labels['proxyfleet-entry']}://{PROJECT}/{machine.zone}/{machine.name}/{machine.number}",
        identity=Identity(
            fleet_id=labels["proxyfleet-fleet"],
            proxy_uid=UUID(hex=labels["proxyfleet-uid"]),
            namespace=metadata["proxyfleet-namespace"],
            name=metadata["proxyfleet-name"],
            instance_hash=labels["proxyfleet-hash"],
        ),
        state=STATES[machine.status],
        created_at=machine.created_at,
        port=int(metadata["proxyfleet-port"]),
    )

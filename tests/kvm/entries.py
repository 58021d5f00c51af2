"""Entries of the providers file that name the tests' host, and requests that they can fulfil."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from providers.blocks import LibvirtBlock
from providers.instances import InstanceRequest, Placement
from providers.libvirt import checks, driver, sources
from providers.libvirt.driver import Kvm2Provider, KvmProvider, LibvirtProvider
from providers.tests.contract import FLEET, make_request
from tests.kvm.host import SSH_PORT, Host
from tests.kvm.sources import ImageServer

DRIVERS: dict[str, type[LibvirtProvider]] = {"kvm": KvmProvider, "kvm2": Kvm2Provider}


def host_entry(name: str = "host1", **settings: Any) -> dict[str, Any]:
    defaults = {"name": name, "address": "127.0.0.1", "port": SSH_PORT, "user": "root"}
    return defaults | {"network": "egress", "virtType": "qemu"} | settings


def block(host: Host, server: ImageServer, /, *hosts: dict[str, Any], **settings: Any) -> LibvirtBlock:
    """As in the providers file, with one host unless ``hosts`` says otherwise."""
    firmware = {"firmware": "bios"}
    defaults: dict[str, Any] = {
        "sshKeyFile": str(host.key),
        "knownHostsFile": str(host.known_hosts),
        "hosts": list(hosts) or [host_entry()],
        "machineTypes": {"tiny": {"memoryMb": 128}, "small": {"vcpus": 2, "memoryMb": 512}},
        "images": {
            "tiny": {"url": server.url("tiny")} | firmware,
            "full": {"url": server.url("full")} | firmware,
            "full-uefi": {"url": server.url("full")},
        },
        "diskSizeGb": 2,
        "installGuestAgent": False,
    }
    return LibvirtBlock.model_validate(defaults | settings)


def provider(
    kind: str,
    block: LibvirtBlock,
    *,
    entry: str = "home",
    fleet_id: str = FLEET,
    state_dir: Path = Path("/nonexistent"),
) -> LibvirtProvider:
    return DRIVERS[kind](entry=entry, block=block, fleet_id=fleet_id, state_dir=state_dir)


def tiny_request(*, image: str = "tiny", zone: str = "", **arguments: Any) -> InstanceRequest:
    """For a guest that boots in seconds and only asks DHCP for an address."""
    placement = Placement(zone=zone, machine_type="tiny", image=image)
    return replace(make_request(**arguments), placement=placement)


@contextmanager
def impatience(seconds: float) -> Iterator[None]:
    """Calls give up after ``seconds``: around a fault alone, as a busy machine may need the real time for the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "CALL_SECONDS", seconds)
        patch.setattr(checks, "CHECK_SECONDS", seconds)
        patch.setattr(sources, "STALL_SECONDS", seconds)
        yield

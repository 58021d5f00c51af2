"""Between PVE's terms and ours. Pure: no calls, no clock."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from typing import Any, TypeVar
from uuid import UUID

from providers.blocks import ProxmoxBlock, ProxmoxMachineType
from providers.errors import InvalidRequest
from providers.instances import Identity, InstanceState, Placement

T = TypeVar("T")

SEED_DRIVE = "ide2"
"""Every machine type of PVE has it, and every guest a driver for it."""

_MARK = "proxyfleet: "
_DRIVE = re.compile(r"(ide|sata|scsi|virtio)\d+")
_MAC = re.compile(r"(?:[0-9A-F]{2}:){5}[0-9A-F]{2}", re.IGNORECASE)
_PROVIDER_ID = re.compile(r"(?P<node>[A-Za-z0-9-]+)/(?P<vmid>[1-9]\d{2,8})/(?P<uid>[0-9a-f]{16})")
_BROKEN = frozenset({"io-error", "internal-error", "guest-panicked"})
_SUSPENDED = frozenset({"paused", "suspended"})


@dataclass(frozen=True, slots=True)
class Handle:
    """What a providerID says: the VM with this uid. The VMID alone would be taken by whoever gets it next."""

    node: str
    vmid: int
    uid: str

    @classmethod
    def parse(cls, text: str) -> Handle | None:
        found = _PROVIDER_ID.fullmatch(text)
        return cls(found["node"], int(found["vmid"]), found["uid"]) if found else None

    def __str__(self) -> str:
        return f"{self.node}/{self.vmid}/{self.uid}"


@dataclass(frozen=True, slots=True)
class Record:
    """Who a VM is, as its description tells: it is there from the clone call on, unlike tags."""

    identity: Identity
    entry: str
    """Entries may share a cluster; each sees its own VMs alone."""
    uid: str
    node: str
    """Where it was made. A providerID stays the same when the VM moves."""
    created_at: datetime

    def as_description(self) -> str:
        identity = self.identity
        facts = {
            "fleet": identity.fleet_id,
            "entry": self.entry,
            "proxy": str(identity.proxy_uid),
            "namespace": identity.namespace,
            "name": identity.name,
            "hash": identity.instance_hash,
            "uid": self.uid,
            "node": self.node,
            "created": self.created_at.isoformat(),
        }
        made_for = (
            f"Proxy {identity.namespace}/{identity.name} of proxyfleet. Keep the next line: it says whose this is."
        )
        return f"{made_for}\n\n{_MARK}{json.dumps(facts)}\n"


def read_record(config: Mapping[str, Any]) -> Record | None:
    """The record in a VM's description, wherever people wrote around it; None when there is none that can be read."""
    for line in str(config.get("description", "")).splitlines():
        if not line.startswith(_MARK):
            continue
        try:
            facts = json.loads(line.removeprefix(_MARK))
            return Record(
                Identity(facts["fleet"], UUID(facts["proxy"]), facts["namespace"], facts["name"], facts["hash"]),
                entry=facts["entry"],
                uid=facts["uid"],
                node=facts["node"],
                created_at=datetime.fromisoformat(facts["created"]),
            )
        except (ValueError, KeyError, TypeError):
            return None
    return None


def fleet_tag(fleet_id: str) -> str:
    return f"fleet-{fleet_id}"


def tags_in(holder: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(filter(None, re.split(r"[;, ]", str(holder.get("tags", "")))))


def seed_filename(fleet_id: str, uid: str) -> str:
    """Told by the providerID alone, so that a seed can be removed although its VM went by itself."""
    return f"{fleet_id}-{uid}.iso"


def seed_storage(config: Mapping[str, Any], filename: str) -> str | None:
    """The storage that a VM's seed is attached from, whatever is configured by now; None when it isn't attached."""
    volume = str(config.get(SEED_DRIVE, "")).partition(",")[0]
    storage, _, path = volume.partition(":")
    return storage if path == f"iso/{filename}" else None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a placement stands for in an entry."""

    node: str
    template_node: str
    template_vmid: int
    size: ProxmoxMachineType


def plan_for(block: ProxmoxBlock, placement: Placement) -> Plan:
    """Raises InvalidRequest, naming the field and its values. The zone is a node; a single one need not be named."""
    nodes = {name: name for name in block.nodes}
    template = _named("image", placement.image, block.templates)
    size = _named("machineType", placement.machine_type, block.machine_types)
    node = _named("zone", placement.zone or (block.nodes[0] if len(nodes) == 1 else ""), nodes)
    return Plan(node, template.node or block.nodes[0], template.vmid, size)


def _named(field: str, value: str, configured: Mapping[str, T]) -> T:
    known = ", ".join(configured)
    if not value:
        raise InvalidRequest(f"placement.{field} is missing: one of {known}")
    if value not in configured:
        raise InvalidRequest(f"placement.{field} {value!r} is not configured: one of {known}")
    return configured[value]


def hardware(block: ProxmoxBlock, size: ProxmoxMachineType, fleet_id: str) -> dict[str, str | int]:
    """What a clone gets in place of what its template has."""
    vlan = f",tag={block.vlan_tag}" if block.vlan_tag else ""
    return {
        "tags": fleet_tag(fleet_id),
        "cores": size.cores,
        "memory": size.memory_mb,
        "net0": f"virtio,bridge={block.bridge}{vlan}",
        "agent": 1,
    }


def template_problem(config: Mapping[str, Any]) -> str:
    """Why a VM can't serve as template; empty when it can."""
    if not int(config.get("template", 0)):
        return "is no template (qm template VMID)"
    for drive, value in config.items():
        if _DRIVE.fullmatch(drive) and "cloudinit" in str(value):
            return f"has a cloud-init drive, which would hide the seed (qm set VMID --delete {drive})"
    seed_drive = str(config.get(SEED_DRIVE, ""))
    if seed_drive and "media=cdrom" not in seed_drive:
        return f"has a disk as {SEED_DRIVE}, where the seed goes"
    return ""


def state_of(status: Mapping[str, Any]) -> InstanceState:
    if status.get("lock") in {"clone", "create"}:
        return InstanceState.PROVISIONING
    if status.get("status") != "running":
        return InstanceState.STOPPED
    if status.get("qmpstatus") in _BROKEN:
        return InstanceState.FAILED
    return InstanceState.STOPPED if status.get("qmpstatus") in _SUSPENDED else InstanceState.RUNNING


def address_of(interfaces: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> str | None:
    """The guest's address: that of our network card before others', IPv4 before IPv6, never one of this link alone."""
    card = _MAC.search(str(config.get("net0", "")))
    ours = card.group().lower() if card else ""
    ranked = [
        (str(interface.get("hardware-address", "")).lower() != ours, address.version, str(address))
        for interface in interfaces
        for entry in interface.get("ip-addresses") or ()
        for address in [ip_address(entry["ip-address"].partition("%")[0])]
        if not (address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast)
    ]
    return min(ranked, key=lambda candidate: candidate[:2])[2] if ranked else None


def vmids_for(name: str, limits: tuple[int, int]) -> Iterator[int]:
    """All VMIDs of the range, from one that the name decides: a create that is repeated meets what the first left."""
    lowest, highest = limits
    count = highest - lowest + 1
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % count
    for step in range(count):
        yield lowest + (start + step) % count

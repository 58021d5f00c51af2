"""VMs as PVE reports them, and which of them are ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from providers.errors import InstanceNotFound, PermissionDenied
from providers.proxmox.api import Api, Refused
from providers.proxmox.mapping import Handle, Record, fleet_tag, read_record, tags_in


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM with its configuration and the record in it."""

    node: str
    """Where it is now."""
    vmid: int
    config: Mapping[str, Any]
    record: Record

    @property
    def path(self) -> str:
        return vm_path(self.node, self.vmid)

    @property
    def lock(self) -> str:
        return str(self.config.get("lock", ""))

    @property
    def handle(self) -> Handle:
        return Handle(self.record.node, self.vmid, self.record.uid)


def vm_path(node: str, vmid: int) -> str:
    return f"/nodes/{node}/qemu/{vmid}"


def is_missing(refused: Refused) -> bool:
    """PVE checks permissions before existence: who is told this may see the VM, and there is none."""
    return refused.says("does not exist") and refused.says("Configuration file", "qemu-server")


def read_config(api: Api, node: str, vmid: int) -> Mapping[str, Any] | None:
    """None when the node itself says that it has no such VM."""
    try:
        config: Mapping[str, Any] = api.get(f"{vm_path(node, vmid)}/config")
    except Refused as refused:
        if is_missing(refused):
            return None
        raise
    return config


def resources(api: Api) -> list[Mapping[str, Any]]:
    """Every guest and template of the cluster that the token may see.

    Raises PermissionDenied when it may not see all: guests would be missing as if they were gone.
    """
    granted = api.get("/access/permissions", path="/vms").get("/vms", {})
    if not granted.get("VM.Audit"):
        raise PermissionDenied(
            "Proxmox VE hides VMs from the provider's token", detail="the token needs VM.Audit on /vms, propagated"
        )
    return list(api.get("/cluster/resources", type="vm"))


def read_vm(api: Api, item: Mapping[str, Any]) -> Vm | None:
    """The VM behind an item of ``resources``; None when it went meanwhile or carries no record."""
    node, vmid = str(item["node"]), int(item["vmid"])
    config = read_config(api, node, vmid)
    record = config and read_record(config)
    return Vm(node, vmid, config, record) if config and record else None


def find(api: Api, handle: Handle, *, fleet_id: str, entry: str) -> Vm:
    """The VM of a providerID, wherever it moved to.

    Raises InstanceNotFound when it is gone: its node says so and no other node has it, or its VMID is another's now.
    """
    node = handle.node
    config = read_config(api, node, handle.vmid)
    if config is None:
        moved = [item for item in resources(api) if int(item["vmid"]) == handle.vmid]
        if moved:
            node = str(moved[0]["node"])
            config = read_config(api, node, handle.vmid)
    record = config and read_record(config)
    if (
        not config
        or not record
        or (record.uid, record.identity.fleet_id, record.entry) != (handle.uid, fleet_id, entry)
    ):
        raise InstanceNotFound(f"VM {handle.vmid} is gone")
    return Vm(node, handle.vmid, config, record)


def may_be_ours(items: list[Mapping[str, Any]], fleet_id: str, limits: tuple[int, int]) -> Iterator[Mapping[str, Any]]:
    """The items whose configuration is worth reading.

    A tag is always listed; but between the clone and the first change of a VM its tags are the template's, and a name
    is missing while its node has no fresh figures.
    """
    for item in items:
        name = str(item.get("name", ""))
        untagged = limits[0] <= int(item["vmid"]) <= limits[1] and (not name or name.startswith(f"{fleet_id}-"))
        if (
            item.get("type") == "qemu"
            and not item.get("template")
            and (fleet_tag(fleet_id) in tags_in(item) or untagged)
        ):
            yield item

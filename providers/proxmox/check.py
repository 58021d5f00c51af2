"""Is a node usable? Read-only questions, the most general first: the first that fails is the verdict."""

from __future__ import annotations

from collections.abc import Iterator

import requests

from providers.blocks import ProxmoxBlock
from providers.checks import CheckReason, reason_of
from providers.errors import ProviderError, Unavailable
from providers.instances import TargetCheck
from providers.proxmox.api import Api, Refused, translated
from providers.proxmox.mapping import template_problem
from providers.proxmox.vms import read_config

VM_PRIVILEGES = (
    ("VM.Audit",),
    ("VM.Allocate",),
    ("VM.Clone",),
    ("VM.PowerMgmt",),
    ("VM.Config.CDROM",),
    ("VM.Config.CPU",),
    ("VM.Config.Memory",),
    ("VM.Config.Network",),
    ("VM.Config.Options",),
    ("VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted", "VM.Monitor"),
)
"""On /vms. Of several in a row one is enough: PVE 9 split VM.Monitor."""
ISO_PRIVILEGES = (
    ("Datastore.Audit", "Datastore.AllocateSpace"),
    ("Datastore.AllocateTemplate",),
    ("Datastore.Allocate",),
)
DISK_PRIVILEGES = (("Datastore.AllocateSpace",),)

Finding = tuple[CheckReason, str]


def check_node(api: Api, block: ProxmoxBlock, node: str) -> TargetCheck:
    try:
        with translated():
            reason, message = next(_findings(api, block, node), (CheckReason.HEALTHY, ""))
    except ProviderError as error:
        reason, message = reason_of(error), error.detail
        if isinstance(error, Unavailable) and isinstance(error.__cause__, requests.Timeout):
            reason = CheckReason.TIMEOUT
        elif isinstance(error.__cause__, Refused):
            reason = CheckReason.API_ERROR
    return TargetCheck(name=node, ready=reason is CheckReason.HEALTHY, reason=reason, message=message)


def _findings(api: Api, block: ProxmoxBlock, node: str) -> Iterator[Finding]:
    nodes = {item["node"]: item for item in api.get("/nodes")}
    if node not in nodes:
        yield CheckReason.MISCONFIGURED, f"nodes: the cluster has no node {node}"
    elif nodes[node].get("status") != "online":
        yield CheckReason.UNREACHABLE, f"the node {node} is offline"
    yield from _missing_privileges(api, "/vms", VM_PRIVILEGES)
    yield from _storage(api, node, "isoStorage", block.iso_storage, "iso", ISO_PRIVILEGES)
    if block.storage:
        yield from _storage(api, node, "storage", block.storage, "images", DISK_PRIVILEGES)
    for key, template in block.templates.items():
        if (template.node or block.nodes[0]) == node:
            config = read_config(api, node, template.vmid)
            if config is None:
                yield CheckReason.TEMPLATE_NOT_FOUND, f"templates.{key}: there is no VM {template.vmid} on {node}"
            elif problem := template_problem(config):
                yield CheckReason.TEMPLATE_NOT_FOUND, f"templates.{key}: VM {template.vmid} {problem}"
    if block.bridge not in {item["iface"] for item in api.get(f"/nodes/{node}/network", type="any_bridge")}:
        yield CheckReason.NETWORK_NOT_FOUND, f"bridge: {node} shows the token no {block.bridge} (SDN.Use is needed)"


def _missing_privileges(api: Api, path: str, needed: tuple[tuple[str, ...], ...]) -> Iterator[Finding]:
    granted = api.get("/access/permissions", path=path).get(path, {})
    missing = [alternatives[0] for alternatives in needed if not any(name in granted for name in alternatives)]
    if missing:
        yield CheckReason.PERMISSION_DENIED, f"the token lacks {', '.join(missing)} on {path}"


def _storage(
    api: Api, node: str, key: str, name: str, content: str, privileges: tuple[tuple[str, ...], ...]
) -> Iterator[Finding]:
    yield from _missing_privileges(api, f"/storage/{name}", privileges)
    try:
        status = api.get(f"/nodes/{node}/storage/{name}/status")
    except Refused as refused:
        if not refused.says("No such storage", f"storage '{name}'"):
            raise
        yield CheckReason.STORAGE_NOT_FOUND, f"{key}: {node} has no storage {name}"
        return
    if not (status.get("enabled") and status.get("active")):
        yield CheckReason.STORAGE_NOT_FOUND, f"{key}: the storage {name} is not active on {node}"
    elif content not in str(status.get("content", "")).split(","):
        yield CheckReason.STORAGE_NOT_FOUND, f"{key}: the storage {name} is not for {content} (its content types)"

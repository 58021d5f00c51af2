"""The steps of a delete: stop, remove the seed, destroy. What a crash in between leaves can be found again."""

from __future__ import annotations

from urllib.parse import quote

from providers.blocks import ProxmoxBlock
from providers.errors import Misconfigured
from providers.proxmox import tasks
from providers.proxmox.api import Api, Refused
from providers.proxmox.mapping import seed_filename, seed_storage
from providers.proxmox.vms import Vm, is_missing

LOCK_SECONDS = 20


def remove(api: Api, vm: Vm, block: ProxmoxBlock) -> None:
    """Destroy a VM that was just found to be ours, and its seed. PVE destroys a hibernated one as it is.

    Raises PermissionDenied when the seed may not be deleted (Datastore.Allocate), whether there is one or not: it holds
    the owner's cloud-init, and once the VM is gone nothing would name it.
    """
    try:
        if api.get(f"{vm.path}/status/current")["status"] == "running":
            tasks.run(api, lambda: str(api.post(f"{vm.path}/status/stop")), lock_seconds=LOCK_SECONDS)
        filename = seed_filename(vm.record.identity.fleet_id, vm.record.uid)
        remove_seed(api, vm.node, seed_storage(vm.config, filename) or block.iso_storage, filename)
        tasks.run(api, lambda: str(api.delete(vm.path, purge=1)), lock_seconds=LOCK_SECONDS)
    except Refused as refused:
        if not is_missing(refused):
            raise


def remove_seed(api: Api, node: str, storage: str, filename: str) -> None:
    """Repeatable: PVE only warns when the file is not there."""
    volume = quote(f"{storage}:iso/{filename}", safe="")
    try:
        tasks.run(
            api,
            lambda: str(api.delete(f"/nodes/{node}/storage/{storage}/content/{volume}")),
            lock_seconds=LOCK_SECONDS,
        )
    except Refused as refused:
        if refused.says("No such storage", f"storage '{storage}' does not exist"):
            raise Misconfigured("isoStorage is missing: the seed can't be removed", detail=str(refused)) from refused
        raise

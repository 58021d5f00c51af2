"""The steps of a delete: stop, remove the seed, destroy. What a crash in between leaves can be found again."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from providers.blocks import ProxmoxBlock
from providers.errors import Misconfigured
from providers.proxmox import tasks
from providers.proxmox.api import Api, Refused
from providers.proxmox.mapping import seed_filename, seed_storage
from providers.proxmox.vms import Vm, is_missing, read_vm

LOCK_SECONDS = 20


def remove(api: Api, vm: Vm, block: ProxmoxBlock) -> None:
    """Destroy a VM that was just found to be ours, and its seed. PVE destroys a hibernated one as it is.

    Raises PermissionDenied when the seed may not be deleted (Datastore.Allocate), whether there is one or not: it holds
    the owner's cloud-init, and once the VM is gone nothing would name it.
    """
    filename = seed_filename(vm.record.identity.fleet_id, vm.record.uid)
    _unless_gone(api, vm, lambda: _stop(api, vm))
    remove_seed(api, vm.node, seed_storage(vm.config, filename) or block.iso_storage, filename)
    _unless_gone(api, vm, lambda: api.delete(vm.path, purge=1))


def _stop(api: Api, vm: Vm) -> object:
    is_running = api.get(f"{vm.path}/status/current")["status"] == "running"
    return api.post(f"{vm.path}/status/stop") if is_running else None


def _unless_gone(api: Api, vm: Vm, submit: Callable[[], object]) -> None:
    """Follow the task that ``submit`` starts, if it starts one.

    The VM is looked at before each try: while tasks and locks were waited for, it may have gone, and its VMID may have
    become another's.
    """

    def attempt() -> str | None:
        there = read_vm(api, {"node": vm.node, "vmid": vm.vmid})
        task = submit() if there and there.record.uid == vm.record.uid else None
        return None if task is None else str(task)

    try:
        tasks.run(api, attempt, lock_seconds=LOCK_SECONDS)
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

"""The ``proxmox`` driver's verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from providers.base import BehaviourProfile
from providers.blocks import ProxmoxBlock
from providers.errors import InstanceNotFound, InvalidRequest, Unavailable
from providers.instances import Instance, InstanceList, InstanceRequest, InstanceState, TargetCheck
from providers.profiles import PROFILES
from providers.proxmox.api import Api, Refused, translated
from providers.proxmox.check import check_node
from providers.proxmox.creation import Creation
from providers.proxmox.mapping import Handle, address_of, fleet_tag, seed_filename, state_of, tags_in
from providers.proxmox.removal import remove, remove_seed
from providers.proxmox.vms import Vm, find, may_be_ours, read_vm, resources
from providers.registry import entry_of

BOOT_SECONDS = 1800
"""A guest without an agent after this time had one, or its proxy was given up for want of an address before."""


class ProxmoxProvider:
    """One entry of type ``proxmox``."""

    profile: ClassVar[BehaviourProfile] = PROFILES["proxmox"]

    def __init__(self, *, entry: str, block: ProxmoxBlock, fleet_id: str, state_dir: Path) -> None:  # noqa: ARG002
        # state_dir: every driver is offered one, and this one keeps nothing.
        self._entry = entry
        self._block = block
        self._fleet_id = fleet_id

    def create(self, request: InstanceRequest) -> Instance:
        with translated(), self._api(self.profile.create_deadline_seconds) as api:
            vm = Creation(api, self._entry, self._block, request).run()
            return self._instance(vm, InstanceState.RUNNING)

    def get(self, provider_id: str) -> Instance:
        handle = self._handle(provider_id)
        if handle is None:
            raise InstanceNotFound(f"{provider_id} names no VM")
        with translated(), self._api() as api:
            vm = find(api, handle, fleet_id=self._fleet_id, entry=self._entry)
            status = api.get(f"{vm.path}/status/current")
            state = state_of(status)
            address = _address(api, vm, float(status.get("uptime", 0))) if state is InstanceState.RUNNING else None
            message = "" if state is InstanceState.RUNNING else _message(status)
            return self._instance(vm, state, address=address, message=message)

    def delete(self, provider_id: str) -> None:
        handle = self._handle(provider_id)
        if handle is None:
            return
        with translated(), self._api() as api:
            try:
                vm = find(api, handle, fleet_id=self._fleet_id, entry=self._entry)
            except InstanceNotFound:
                remove_seed(api, handle.node, self._block.iso_storage, seed_filename(self._fleet_id, handle.uid))
                return
            remove(api, vm, self._block)

    def list(self) -> InstanceList:
        """Without addresses: each would cost a question to a guest."""
        instances, silent = [], set()
        with translated(), self._api() as api:
            online = {node["node"] for node in api.get("/nodes") if node.get("status") == "online"}
            silent.update(set(self._block.nodes) - online)
            for item in may_be_ours(resources(api), self._fleet_id, self._block.vmid_range):
                try:
                    vm = read_vm(api, item)
                except Unavailable:
                    silent.add(str(item["node"]))
                    continue
                if vm is None:
                    if fleet_tag(self._fleet_id) in tags_in(item):
                        silent.add(f"VM {item['vmid']}: its description tells no owner")
                elif vm.record.identity.fleet_id == self._fleet_id and vm.record.entry == self._entry:
                    instances.append(self._instance(vm, state_of({**item, "lock": vm.lock})))
        return InstanceList(tuple(instances), unreachable=tuple(sorted(silent)))

    def check(self) -> Iterable[TargetCheck]:
        for node in self._block.nodes:
            with self._api() as api:
                yield check_node(api, self._block, node)

    def _api(self, seconds: float | None = None) -> Api:
        return Api(self._block, seconds=seconds or self.profile.call_deadline_seconds)

    def _handle(self, provider_id: str) -> Handle | None:
        if entry_of(provider_id) != self._entry:
            raise InvalidRequest(f"{provider_id} was not made by provider {self._entry!r}")
        return Handle.parse(provider_id.removeprefix(f"{self._entry}://"))

    def _instance(self, vm: Vm, state: InstanceState, *, address: str | None = None, message: str = "") -> Instance:
        return Instance(
            provider_id=f"{self._entry}://{vm.handle}",
            identity=vm.record.identity,
            state=state,
            created_at=vm.record.created_at,
            address=address,
            message=message,
        )


def _address(api: Api, vm: Vm, uptime: float) -> str | None:
    """None while the guest boots. Raises Unavailable when its agent fell silent: the address is not lost by that."""
    try:
        answer = api.get(f"{vm.path}/agent/network-get-interfaces")
    except Refused as refused:
        if uptime < BOOT_SECONDS and refused.says("is not running", "No QEMU guest agent configured"):
            return None
        raise
    return address_of(answer.get("result") or (), vm.config)


def _message(status: Mapping[str, Any]) -> str:
    return f"the VM is {status.get('qmpstatus') or status.get('status')}"

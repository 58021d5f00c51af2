"""The steps of a create. Each looks first at what is there: a repeated create goes on where the last one ended."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from providers.blocks import ProxmoxBlock
from providers.cloudinit import vendor_data
from providers.errors import Conflict, Misconfigured, QuotaExceeded, Unavailable
from providers.instances import InstanceRequest
from providers.proxmox import tasks
from providers.proxmox.api import Api, Refused
from providers.proxmox.mapping import (
    SEED_DRIVE,
    Plan,
    Record,
    fleet_tag,
    hardware,
    plan_for,
    seed_filename,
    seed_storage,
    tags_in,
    template_problem,
    vmids_for,
)
from providers.proxmox.removal import remove
from providers.proxmox.vms import Vm, is_missing, may_be_ours, read_config, read_vm, resources, vm_path
from providers.seed_iso import build_seed_iso

Items = list[Mapping[str, Any]]


class Creation:
    """One ``create`` on its way."""

    def __init__(self, api: Api, entry: str, block: ProxmoxBlock, request: InstanceRequest) -> None:
        self._api = api
        self._entry = entry
        self._block = block
        self._request = request
        self._fleet_id = request.identity.fleet_id
        self._hidden: set[int] = set()

    def run(self) -> Vm:
        """The VM, running.

        Raises Conflict when its name is held by another owner, InvalidRequest when it names what is not configured.
        """
        for _ in self._api.pauses(f"the VM {self._request.name}"):
            items = resources(self._api)
            found = self._existing(items)
            plan = plan_for(self._block, self._request.placement)
            vm = found or self._clone(plan, items)
            if vm and self._bring_up(vm, plan):
                return vm
        raise Unavailable(f"gave up on the VM {self._request.name}")

    def _existing(self, items: Items) -> Vm | None:
        for item in may_be_ours(items, self._fleet_id, self._block.vmid_range):
            if item.get("name") not in {None, "", self._request.name}:
                continue
            vm = read_vm(self._api, item)
            if vm is None:
                if item.get("name") == self._request.name and item.get("lock") != "clone" and self._is_there(item):
                    raise Conflict(f"the name {self._request.name} is held by VM {item['vmid']}, which is not ours")
                continue
            if vm.record.identity.instance_name == self._request.name:
                if (vm.record.identity, vm.record.entry) != (self._request.identity, self._entry):
                    raise Conflict(f"the name {self._request.name} is held by another owner")
                return vm
        return None

    def _is_there(self, item: Mapping[str, Any]) -> bool:
        return read_config(self._api, str(item["node"]), int(item["vmid"])) is not None

    def _clone(self, plan: Plan, items: Items) -> Vm | None:
        """The clone; None when somebody else was faster, and all must be looked at again."""
        self._require_template(plan)
        vmid = self._free_vmid(items)
        if vmid is None:
            return None
        record = Record(self._request.identity, self._entry, secrets.token_hex(8), plan.node, self._api.now())
        parameters: dict[str, str | int] = {
            "newid": vmid,
            "name": self._request.name,
            "description": record.as_description(),
            "full": 1,
        }
        if self._block.storage:
            parameters["storage"] = self._block.storage
        if plan.node != plan.template_node:
            parameters["target"] = plan.node
        try:
            tasks.run(
                self._api,
                lambda: str(self._api.post(f"{vm_path(plan.template_node, plan.template_vmid)}/clone", parameters)),
            )
        except Refused as refused:
            if refused.says("already exists"):
                return None
            self._clear_failed(plan, vmid, record)
            if refused.says("storage '") and refused.says("does not exist", "does not support"):
                raise Misconfigured(f"storage: {refused.text}", detail=str(refused)) from refused
            raise
        config = read_config(self._api, plan.node, vmid)
        return Vm(plan.node, vmid, config, record) if config else None

    def _free_vmid(self, items: Items) -> int | None:
        """The first VMID that nobody has; None when one has to be looked at again.

        A clone has no name until its first disk is copied. One that stands where an earlier try for this request would
        have cloned to may be just that: it is waited for, while one that is known to be another's is skipped.
        """
        known = {int(item["vmid"]): item for item in items}
        for vmid in vmids_for(self._request.name, self._block.vmid_range):
            if item := known.get(vmid):
                if item.get("lock") in {"clone", "create"} and not self._is_anothers(item):
                    return None
                continue
            if vmid in self._hidden:
                continue
            try:
                self._api.get("/cluster/nextid", vmid=vmid)
            except Refused as refused:
                if not refused.says("already exists"):
                    raise
                # New since we looked, and perhaps made for this very request; or never shown to the token.
                self._hidden.add(vmid)
                return None
            return vmid
        lowest, highest = self._block.vmid_range
        raise QuotaExceeded(f"no VMID is free between {lowest} and {highest}")

    def _is_anothers(self, item: Mapping[str, Any]) -> bool:
        vm = read_vm(self._api, item)
        return vm is not None and vm.record.identity != self._request.identity

    def _require_template(self, plan: Plan) -> None:
        config = read_config(self._api, plan.template_node, plan.template_vmid)
        problem = "does not exist" if config is None else template_problem(config)
        if problem:
            raise Misconfigured(
                f"the template of image {self._request.placement.image!r} can't be used",
                detail=f"templates: VM {plan.template_vmid} on {plan.template_node} {problem}",
            )

    def _clear_failed(self, plan: Plan, vmid: int, record: Record) -> None:
        """PVE removes what a failed clone leaves; what it did not remove is ours by its record, or it stays."""
        for node in {plan.template_node, plan.node}:
            vm = read_vm(self._api, {"node": node, "vmid": vmid})
            if vm and vm.record.uid == record.uid:
                remove(self._api, vm, self._block)

    def _bring_up(self, vm: Vm, plan: Plan) -> bool:
        """All steps from a clone to a running VM; False when something has changed or is locked, to be looked at again.

        A change names the configuration that it is based on by its digest: of two workers one is told to look again.
        """
        found: Vm | None = vm
        try:
            while found and not found.lock:
                if self._is_running(found):
                    return True
                self._step(found, plan)
                found = read_vm(self._api, {"node": found.node, "vmid": found.vmid})
        except Refused as refused:
            if not (is_missing(refused) or refused.says("checksum mismatch", "already running")):
                raise
        return False

    def _step(self, vm: Vm, plan: Plan) -> None:
        filename = seed_filename(self._fleet_id, vm.record.uid)
        if fleet_tag(self._fleet_id) not in tags_in(vm.config):
            self._configure(vm, hardware(self._block, plan.size, self._fleet_id))
        elif not seed_storage(vm.config, filename):
            self._upload(vm, filename)
            self._configure(vm, {SEED_DRIVE: f"{self._block.iso_storage}:iso/{filename},media=cdrom"})
        else:
            tasks.run(self._api, lambda: str(self._api.post(f"{vm.path}/status/start")))

    def _is_running(self, vm: Vm) -> bool:
        return bool(self._api.get(f"{vm.path}/status/current")["status"] == "running")

    def _configure(self, vm: Vm, values: Mapping[str, str | int]) -> None:
        self._api.put(f"{vm.path}/config", {**values, "digest": str(vm.config.get("digest", ""))})

    def _upload(self, vm: Vm, filename: str) -> None:
        seed = build_seed_iso(
            instance_id=f"{self._request.name}-{vm.record.uid}",
            hostname=self._request.identity.name,
            user_data=self._request.user_data,
            vendor_data=vendor_data(self._block.vendor_data, install_guest_agent=self._block.install_guest_agent),
        )
        storage = self._block.iso_storage
        try:
            tasks.run(self._api, lambda: str(self._api.upload_iso(vm.node, storage, filename, seed)))
        except Refused as refused:
            if refused.says("No such storage", f"storage '{storage}'", "can't upload to storage type"):
                raise Misconfigured("isoStorage can't take the seed", detail=f"isoStorage: {refused}") from refused
            raise

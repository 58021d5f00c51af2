"""The state of a PVE cluster and what its calls do to it. Errors carry PVE's own words: a client has nothing else."""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from providers.proxmox.tests.standin.rules import CONFIG_PRIVILEGES, TAG

_PRIVILEGES = """
VM.Audit VM.Allocate VM.Clone VM.PowerMgmt VM.Config.CDROM VM.Config.CPU VM.Config.Memory VM.Config.Network
VM.Config.Options VM.GuestAgent.Audit Datastore.Audit Datastore.AllocateSpace Datastore.AllocateTemplate
Datastore.Allocate SDN.Use
"""
ALL_PRIVILEGES = frozenset(_PRIVILEGES.split())
TOKEN = "fleet@pve!driver=3e0b8a5c-secret-of-the-token"
TEMPLATE = 9000


class PveError(Exception):
    """An answer other than 200: the text goes into the reason phrase."""

    def __init__(self, status: int, text: str, errors: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.errors = status, text, errors


class TaskFailed(Exception):
    """The end of a task that was accepted; its text is the exit status."""


@dataclass
class Guest:
    node: str
    vmid: int
    config: dict[str, str]
    status: str = "stopped"
    qmpstatus: str = "stopped"
    agent_refusals: int = 0
    """How often the agent is not there yet when it is asked."""
    addresses: list[str] = field(default_factory=list)
    started: float = 0
    uptime: float | None = None
    known_name: bool = True
    """False: its node has no fresh figures of it, so that listings show no name."""


@dataclass
class Task:
    upid: str
    exitstatus: str = ""
    log: list[str] = field(default_factory=list)


@dataclass
class Storage:
    content: str
    kind: str = "dir"
    files: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Cluster:
    """One or more nodes that share everything but their guests. ``lock`` guards all of it."""

    def __init__(self, *nodes: str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.clock = clock
        self.nodes = nodes or ("pve1",)
        self.offline: set[str] = set()
        self.guests: dict[int, Guest] = {}
        self.storages = {"local": Storage("iso,vztmpl"), "local-lvm": Storage("images,rootdir", "lvmthin")}
        self.bridges = ["vmbr0"]
        self.tokens: dict[str, dict[str, frozenset[str]]] = {TOKEN: {"/": ALL_PRIVILEGES}}
        self.tasks: dict[str, Task] = {}
        self.task_seconds = 0.0
        self.lock_seconds = 0.05
        self.task_faults: dict[str, list[str]] = {}
        """By kind of task: the exit status with which the next ones fail."""
        self.failed_clones_stay = False
        self.agent_refusals = 0
        self.lock = threading.RLock()
        self._serials = itertools.count(1)
        self.add_template(TEMPLATE, self.nodes[0])

    def add_template(self, vmid: int, node: str, **config: str) -> Guest:
        usual = {
            "name": "debian-13",
            "template": "1",
            "tags": "golden;template",
            "description": "The golden image.\n",
            "ide2": "none,media=cdrom",
            "scsi0": f"local-lvm:base-{vmid}-disk-0,size=3G",
            "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
        }
        return self.add_guest(vmid, node, **usual | config)

    def add_guest(self, vmid: int, node: str | None = None, **config: str) -> Guest:
        guest = self.guests[vmid] = Guest(node or self.nodes[0], vmid, dict(config))
        return guest

    # Who may what

    def privileges(self, token: str, path: str) -> frozenset[str]:
        """The entry closest to the path holds, as in PVE."""
        entries = self.tokens[token]
        while path not in entries:
            if path == "/":
                return frozenset()
            path = path.rpartition("/")[0] or "/"
        return entries[path]

    def require(self, token: str, path: str, needed: frozenset[str]) -> None:
        if not needed & self.privileges(token, path):
            raise PveError(403, f"Permission check failed ({path}, {'|'.join(sorted(needed))})")

    # What is asked

    def version(self, token: str) -> Any:
        return {"version": "9.1.3", "release": "9.1"}

    def permissions(self, token: str, path: str = "/", userid: str = "") -> Any:
        return {path: dict.fromkeys(sorted(self.privileges(token, path)), 1)}

    def nodes_(self, token: str) -> Any:
        return [{"node": node, "status": "offline" if node in self.offline else "online"} for node in self.nodes]

    def resources(self, token: str, type: str = "") -> Any:  # noqa: A002  PVE's name
        items = []
        for guest in self.guests.values():
            if "VM.Audit" not in self.privileges(token, f"/vms/{guest.vmid}"):
                continue
            fresh = guest.known_name and guest.node not in self.offline
            item = {"id": f"qemu/{guest.vmid}", "type": "qemu", "vmid": guest.vmid, "node": guest.node}
            item |= {"template": int(guest.config.get("template", 0)), "status": guest.status if fresh else "unknown"}
            item |= {key: guest.config[key] for key in ("tags", "lock") if guest.config.get(key)}
            if fresh and "name" in guest.config:
                item["name"] = guest.config["name"]
            items.append(item)
        return items

    def nextid(self, token: str, vmid: str = "") -> Any:
        if vmid and int(vmid) in self.guests:
            raise PveError(400, "Parameter verification failed.", {"vmid": f"VM {vmid} already exists"})
        return vmid or str(next(number for number in itertools.count(100) if number not in self.guests))

    def guest(self, node: str, vmid: str) -> Guest:
        guest = self.guests.get(int(vmid))
        if guest is None or guest.node != node:
            raise PveError(500, f"Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist")
        return guest

    def config(self, token: str, node: str, vmid: str, current: str = "0") -> Any:
        guest = self.guest(node, vmid)
        return {**guest.config, "digest": digest(guest)}

    def status(self, token: str, node: str, vmid: str) -> Any:
        guest = self.guest(node, vmid)
        uptime = guest.uptime if guest.uptime is not None else time.monotonic() - guest.started
        answer = {"vmid": guest.vmid, "status": guest.status, "qmpstatus": guest.qmpstatus}
        answer["uptime"] = int(uptime) if guest.status == "running" else 0
        return answer | ({"lock": guest.config["lock"]} if "lock" in guest.config else {})

    def interfaces(self, token: str, node: str, vmid: str) -> Any:
        guest = self.guest(node, vmid)
        if not guest.config.get("agent", "").startswith("1"):
            raise PveError(500, "No QEMU guest agent configured")
        if guest.status != "running":
            raise PveError(500, f"VM {vmid} is not running")
        if guest.agent_refusals > 0:
            guest.agent_refusals -= 1
            raise PveError(500, "QEMU guest agent is not running")
        card = guest.config["net0"].partition("=")[2].partition(",")[0].lower()
        loopback = {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1", "ip-address-type": "ipv4"}]}
        bare = {"name": "eth1", "hardware-address": "02:00:00:00:00:99"}
        ours = {"name": "eth0", "hardware-address": card}
        ours["ip-addresses"] = [{"ip-address": address} for address in guest.addresses]  # type: ignore[assignment]
        return {"result": [loopback, bare, ours]}

    def storage(self, name: str) -> Storage:
        if name not in self.storages:
            raise PveError(500, f"storage '{name}' does not exist")
        return self.storages[name]

    def storage_status(self, token: str, node: str, storage: str) -> Any:
        if storage not in self.storages:
            raise PveError(400, "Parameter verification failed.", {"storage": "No such storage."})
        return {"content": self.storages[storage].content, "active": 1, "enabled": 1}

    def network(self, token: str, node: str, type: str = "") -> Any:  # noqa: A002  PVE's name
        return [{"iface": bridge, "type": "bridge"} for bridge in self.bridges]

    # What is done at once

    def configure(self, token: str, node: str, vmid: str, **values: str) -> None:
        guest = self.guest(node, vmid)
        wanted = values.pop("digest", "")
        if not values:
            raise PveError(500, "no options specified")
        if "lock" in guest.config:
            raise PveError(500, f"VM is locked ({guest.config['lock']})")
        if wanted and wanted != digest(guest):
            raise PveError(500, "checksum mismatch (file change by other user?)")
        for key in values:
            self.require(token, f"/vms/{vmid}", frozenset({CONFIG_PRIVILEGES[key]}))
        if "tags" in values:
            values["tags"] = normalised_tags(values["tags"])
        if "net0" in values and "=" not in values["net0"].partition(",")[0]:
            values["net0"] = values["net0"].replace(",", f"=BC:24:11:{next(self._serials):02X}:00:02,", 1)
        guest.config |= values

    # What runs as a task

    def clone(
        self,
        token: str,
        node: str,
        vmid: str,
        newid: str,
        name: str = "",
        description: str = "",
        full: str = "0",
        storage: str = "",
        target: str = "",
    ) -> str:
        source = self.guest(node, vmid)
        number = int(newid)
        if "lock" in source.config:
            raise PveError(500, f"VM is locked ({source.config['lock']})")
        if storage and full != "1":
            raise PveError(500, "parameter 'storage' not allowed for linked clones")
        if storage and storage not in self.storages:
            raise PveError(500, f"storage '{storage}' does not exist")
        if storage and "images" not in self.storages[storage].content:
            raise PveError(
                400, "Parameter verification failed.", {"storage": f"storage '{storage}' does not support vm images"}
            )
        if number in self.guests and self.guests[number].node == node:
            raise PveError(500, f"unable to create VM {newid}: config file already exists")
        copy = {key: value for key, value in source.config.items() if key != "template"}
        copy |= {"name": name or f"Copy-of-VM-{source.config['name']}"} | (
            {"description": description.rstrip("\n") + "\n"} if description else {}
        )
        disks = self.storages[storage or "local-lvm"]

        def work() -> None:
            with self._storage_lock(disks, storage or "local-lvm"):
                with self.lock:
                    if number in self.guests:
                        other = self.guests[number]
                        raise TaskFailed(
                            f"unable to create VM {newid}: config file already exists"
                            if other.node == node
                            else f"unable to create VM {newid} - VM {newid} already exists on node '{other.node}'"
                        )
                    guest = self.guests[number] = Guest(
                        node, number, {"lock": "clone", "description": "qmclone temporary file\n"}
                    )
                time.sleep(self.task_seconds)
                with self.lock:
                    if self._fault("qmclone", raise_it=False):
                        if self.failed_clones_stay:
                            guest.config = copy
                        else:
                            del self.guests[number]
                        self._fault("qmclone")
                    guest.config, guest.node = copy, target or node
                    guest.addresses = [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"]

        return self._task(token, node, "qmclone", vmid, work)

    def start(self, token: str, node: str, vmid: str, timeout: str = "") -> str:
        guest = self.guest(node, vmid)
        if "lock" in guest.config and guest.config["lock"] != "suspended":
            raise PveError(500, f"VM is locked ({guest.config['lock']})")
        if guest.status == "running":
            raise PveError(500, f"VM {vmid} already running")

        def work() -> None:
            with self.lock:
                self._fault("qmstart")
                volume = guest.config.get("ide2", "none").partition(",")[0]
                storage, _, path = volume.partition(":")
                if volume != "none" and path not in self.storages[storage].files:
                    raise TaskFailed(f"volume '{volume}' does not exist")
                guest.config.pop("lock", None)
                guest.status = guest.qmpstatus = "running"
                guest.started, guest.agent_refusals = time.monotonic(), self.agent_refusals

        return self._task(token, node, "qmstart", vmid, work)

    def stop(self, token: str, node: str, vmid: str, timeout: str = "") -> str:
        guest = self.guest(node, vmid)

        def work() -> None:
            with self.lock:
                self._fault("qmstop")
                guest.status = guest.qmpstatus = "stopped"

        return self._task(token, node, "qmstop", vmid, work)

    def destroy(self, token: str, node: str, vmid: str, **options: str) -> str:
        guest = self.guest(node, vmid)
        if guest.config.get("protection") == "1":
            raise PveError(500, f"can't remove VM {vmid} - protection mode enabled")
        if guest.status == "running":
            raise PveError(500, f"VM {vmid} is running - destroy failed")

        def work() -> None:
            with self.lock:
                self._fault("qmdestroy")
                if guest.config.get("lock", "suspended") != "suspended":
                    raise TaskFailed(f"VM is locked ({guest.config['lock']})")
                if self.guests.get(guest.vmid) is guest:
                    del self.guests[guest.vmid]

        return self._task(token, node, "qmdestroy", vmid, work)

    def upload(self, token: str, node: str, storage: str, filename: str, content: str, **checks: str) -> str:
        target = self.storage(storage)
        data = content.encode("latin-1")
        if target.kind != "dir":
            raise PveError(500, f"can't upload to storage type '{target.kind}'")
        name = re.sub(r"[^a-zA-Z0-9_.-]", "_", filename.replace("\\", "/").rpartition("/")[2])
        if not name.endswith((".iso", ".img")):
            raise PveError(400, "Parameter verification failed.", {"filename": "wrong file extension"})

        def work() -> None:
            self._fault("imgcopy")
            if checks and hashlib.new(checks["checksum-algorithm"], data).hexdigest() != checks["checksum"]:
                raise TaskFailed("checksum mismatch: got something else than expected")
            target.files[f"iso/{name}"] = data

        return self._task(token, node, "imgcopy", "", work)

    def delete_volume(self, token: str, node: str, storage: str, volume: str, delay: str = "") -> str:
        files = self.storage(storage).files

        def work() -> None:
            self._fault("imgdel")
            files.pop(volume.removeprefix(f"{storage}:"), None)

        return self._task(token, node, "imgdel", volume.replace(":", "@").replace("/", "-"), work)

    def task_status(self, token: str, node: str, upid: str) -> Any:
        if upid not in self.tasks:
            raise PveError(400, "Parameter verification failed.", {"upid": "no such task"})
        ended = self.tasks[upid].exitstatus
        return (
            {"upid": upid, "status": "stopped", "exitstatus": ended} if ended else {"upid": upid, "status": "running"}
        )

    def task_log(self, token: str, node: str, upid: str, start: str = "0", limit: str = "50") -> Any:
        return [{"n": number, "t": line} for number, line in enumerate(self.tasks[upid].log, 1)]

    def _task(self, token: str, node: str, kind: str, subject: str, work: Callable[[], None]) -> str:
        serial, started = next(self._serials), int(self.clock().timestamp())
        user = token.partition("=")[0]
        upid = f"UPID:{node}:{serial:08X}:{serial:08X}:{started:08X}:{kind}:{subject}:{user}:"
        task = self.tasks[upid] = Task(upid)

        def run() -> None:
            try:
                work()
            except TaskFailed as failure:
                task.log.append(f"TASK ERROR: {failure}")
                task.exitstatus = str(failure)
            else:
                task.log.append("TASK OK")
                task.exitstatus = "OK"

        if self.task_seconds:
            threading.Thread(target=run, daemon=True).start()
        else:
            run()
        return upid

    def _fault(self, kind: str, *, raise_it: bool = True) -> bool:
        planned = self.task_faults.get(kind)
        if planned and raise_it:
            raise TaskFailed(planned.pop(0))
        return bool(planned)

    @contextmanager
    def _storage_lock(self, storage: Storage, name: str) -> Iterator[None]:
        if not storage.lock.acquire(timeout=self.lock_seconds):
            path = f"/var/lock/pve-manager/pve-storage-{name}"
            raise TaskFailed(f"clone failed: can't lock file '{path}' - got timeout")
        try:
            yield
        finally:
            storage.lock.release()


def digest(guest: Guest) -> str:
    return hashlib.sha1(repr(sorted(guest.config.items())).encode()).hexdigest()


def normalised_tags(tags: str) -> str:
    found = {tag.lower() for tag in re.split(r"[;, ]+", tags) if tag}
    if bad := sorted(tag for tag in found if not TAG.fullmatch(tag)):
        raise PveError(400, "Parameter verification failed.", {"tags": f"invalid characters in tag {bad[0]}"})
    return ";".join(sorted(found))

"""The ``process`` driver; the package says what it promises and how."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from providers.base import BehaviourProfile
from providers.blocks import ProcessBlock
from providers.checks import CheckReason
from providers.errors import (
    Conflict,
    InstanceNotFound,
    InvalidRequest,
    Misconfigured,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Unavailable,
)
from providers.instances import Instance, InstanceList, InstanceRequest, InstanceState, TargetCheck
from providers.process.addresses import Endpoint, choose_endpoint, is_of_this_machine
from providers.process.folder import Busy, InstanceFolder, Record, Unreadable, locked, make_private
from providers.process.launch import launching
from providers.process.liveness import END_SECONDS, MARK, end, end_marked, leader_of
from providers.process.processes import Process, find_process
from providers.profiles import PROFILES
from providers.registry import entry_of

SERVER = Path(__file__).with_name("server.py")
DEFAULT_COMMAND = (
    *(sys.executable, "-I", str(SERVER)),
    *("--hostname", "{host}", "--port", "{port}", "--data-dir", "{dir}/data"),
)
INHERITED_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")
"""A proxy server gets no others: the product's own environment holds its passwords."""

POLL_SECONDS = 0.02


class ProcessProvider:
    """One entry of type ``process``."""

    profile: ClassVar[BehaviourProfile] = PROFILES["process"]

    def __init__(self, *, entry: str, block: ProcessBlock, fleet_id: str, state_dir: Path) -> None:
        self._entry = entry
        self._fleet_id = fleet_id
        self._host = block.host
        self._command = block.command or DEFAULT_COMMAND
        self._root = (block.state_dir or state_dir / "process").absolute() / entry
        self._our_name = re.compile(rf"{re.escape(fleet_id)}-[0-9a-f]{{32}}-[0-9a-f]{{8}}")

    def create(self, request: InstanceRequest) -> Instance:
        deadline = self._deadline()
        folder = InstanceFolder(self._root / request.name)
        with _translated():
            while True:
                with locked(folder.path, deadline=deadline, make=True):
                    found = self._adopt(folder, request)
                    record = found or self._launch(folder, request, deadline)
                if instance := self._await_listening(folder, record, deadline):
                    return instance
                printed = folder.log_tail() or "it printed nothing"
                cleared = self._clear(folder, record.token, deadline=deadline)
                if found:
                    continue  # it was dying, or its creator had died before it let it go
                if not cleared:
                    raise Unavailable(f"{request.name} was deleted while it was being made")
                raise Misconfigured(f"the proxy server ended before it listened: {printed}")

    def get(self, provider_id: str) -> Instance:
        with _translated():
            found = self._find(provider_id)
            if found is not None:
                folder, record = found
                if process := leader_of(record):
                    return self._instance(record, process)
                self._clear(folder, record.token, deadline=self._deadline())
        raise InstanceNotFound(f"{provider_id} does not run on this machine")

    def delete(self, provider_id: str) -> None:
        with _translated():
            try:
                found = self._find(provider_id)
            except Unreadable:
                self._clear_damaged(self._folder_of(provider_id))
                return
            if found is not None:
                folder, record = found
                self._clear(folder, record.token, deadline=self._deadline())

    def list(self) -> InstanceList:
        instances, unreadable = [], []
        with _translated():
            for folder in self._folders():
                if not self._our_name.fullmatch(folder.path.name):
                    continue
                try:
                    instance = self._look(folder)
                except (Unavailable, Unreadable):
                    unreadable.append(folder.path.name)
                    continue
                if instance:
                    instances.append(instance)
        return InstanceList(tuple(instances), unreachable=tuple(unreadable))

    def check(self) -> Iterable[TargetCheck]:
        reason, message = CheckReason.HEALTHY, ""
        if shutil.which(self._command[0]) is None:
            reason, message = CheckReason.MISCONFIGURED, f"command: {self._command[0]!r} is not installed"
        elif self._command is DEFAULT_COMMAND and importlib.util.find_spec("proxy") is None:
            reason, message = CheckReason.MISCONFIGURED, "proxy.py is not installed: pip install 'proxyfleet[local]'"
        elif not is_of_this_machine(self._host):
            reason, message = CheckReason.MISCONFIGURED, f"host: {self._host} is no address of this machine"
        else:
            try:
                make_private(self._root)
                tempfile.TemporaryFile(dir=self._root).close()
            except OSError as error:
                denied = isinstance(error, PermissionError)
                reason = CheckReason.PERMISSION_DENIED if denied else CheckReason.MISCONFIGURED
                message = f"{self._root} can't be written: {error.strerror}"
        yield TargetCheck(name="localhost", ready=reason is CheckReason.HEALTHY, reason=reason, message=message)

    def _deadline(self) -> float:
        """Leaves time to end what has to be ended: something dead before a start, and a start that failed."""
        return time.monotonic() + self.profile.call_deadline_seconds - 2 * END_SECONDS

    def _is_ours(self, record: Record) -> bool:
        return record.identity.fleet_id == self._fleet_id

    def _find(self, provider_id: str) -> tuple[InstanceFolder, Record] | None:
        """The instance of exactly this providerID, when there is a record of it, alive or not."""
        if entry_of(provider_id) != self._entry:
            raise InvalidRequest(f"{provider_id} was not made by provider {self._entry!r}")
        folder, token = self._folder_of(provider_id), provider_id.rpartition("/")[2]
        if not self._our_name.fullmatch(folder.path.name):
            return None
        record = folder.read()
        if record is None or record.token != token or not self._is_ours(record):
            return None
        return folder, record

    def _folder_of(self, provider_id: str) -> InstanceFolder:
        return InstanceFolder(self._root / provider_id.removeprefix(f"{self._entry}://").partition("/")[0])

    def _folders(self) -> Iterator[InstanceFolder]:
        if self._root.is_dir():
            yield from (InstanceFolder(path) for path in sorted(self._root.iterdir()) if path.is_dir())

    def _look(self, folder: InstanceFolder) -> Instance | None:
        """The instance in a folder, if it is ours and alive; what is dead is cleared away on this occasion."""
        record = folder.read()
        if record and not self._is_ours(record):
            return None
        if record and (process := leader_of(record)):
            return self._instance(record, process)
        with suppress(Busy):  # whoever holds it is about to clear it, or to start it
            self._clear(folder, record.token if record else None, deadline=0)
        return None

    def _adopt(self, folder: InstanceFolder, request: InstanceRequest) -> Record | None:
        """The instance that an earlier create made for this request, if it is alive; its remains are ended if not."""
        record = folder.read()
        if record is None:
            return None
        if record.identity != request.identity:
            raise Conflict(f"the name {request.name} is held by another owner")
        if leader_of(record):
            return record
        end(record)
        return None

    def _launch(self, folder: InstanceFolder, request: InstanceRequest, deadline: float) -> Record:
        # An endpoint is promised by the record that names it: choosing one and recording it must not be interleaved.
        with locked(self._root, deadline=deadline):
            host, port = choose_endpoint(self._host, request.port, taken=self._promised())
            command = [word.format(host=host, port=port, dir=folder.path) for word in self._command]
            environment = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
            environment |= {"HOME": str(folder.path), "TMPDIR": str(folder.path), MARK: request.name}
            with launching(
                command, folder=folder.path, log=folder.log, environment=environment, deadline=deadline
            ) as launch:
                process = find_process(launch.pid)
                if process is None:
                    raise Unavailable("a process died before it was started")
                record = Record(
                    identity=request.identity,
                    token=secrets.token_hex(4),
                    address=host,
                    port=port,
                    pid=launch.pid,
                    birth=process.birth,
                    created_at=datetime.now(UTC),
                )
                folder.write(record)
                try:
                    launch.let_go()
                except ProviderError:
                    end(record)
                    folder.remove()
                    raise
        return record

    def _promised(self) -> set[Endpoint]:
        endpoints = set()
        for folder in self._folders():
            try:
                record = folder.read()
            except (Unavailable, Unreadable):
                continue
            if record:
                endpoints.add((record.address, record.port))
        return endpoints

    def _await_listening(self, folder: InstanceFolder, record: Record, deadline: float) -> Instance | None:
        """The instance once its server accepts connections; None when it ended before."""
        while process := leader_of(record):
            if _accepts((record.address, record.port)):
                return self._instance(record, process)
            if time.monotonic() >= deadline:
                self._clear(folder, record.token, deadline=deadline)
                raise Unavailable(f"the proxy server does not listen on {record.address} port {record.port}")
            time.sleep(POLL_SECONDS)
        return None

    def _clear(self, folder: InstanceFolder, token: str | None, *, deadline: float) -> bool:
        """End what runs of the instance with this token and remove its folder; False when it was no longer there.

        Without a token: what a create left that died before it recorded anything, and thus before anything ran.
        """
        try:
            with locked(folder.path, deadline=deadline):
                record = folder.read()
                if (record.token if record else None) != token:
                    return False
                if record:
                    end(record)
                folder.remove()
                return True
        except FileNotFoundError:
            return False

    def _clear_damaged(self, folder: InstanceFolder) -> None:
        """End an instance whose record is damaged by the mark on its processes, and remove its folder."""
        with suppress(FileNotFoundError), locked(folder.path, deadline=self._deadline()):
            end_marked(folder.path.name)
            folder.remove()

    def _instance(self, record: Record, process: Process) -> Instance:
        return Instance(
            provider_id=f"{self._entry}://{record.identity.instance_name}/{record.token}",
            identity=record.identity,
            state=InstanceState.STOPPED if process.is_suspended else InstanceState.RUNNING,
            created_at=record.created_at,
            address=record.address,
            port=record.port,
            message="the process is suspended" if process.is_suspended else "",
        )


def _accepts(endpoint: Endpoint) -> bool:
    try:
        socket.create_connection(endpoint, timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def _translated() -> Iterator[None]:
    """The file system's refusals in the contract's terms."""
    try:
        yield
    except PermissionError as error:
        raise PermissionDenied("the state folder can't be used", detail=str(error)) from error
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise QuotaExceeded("the disk is full", detail=str(error)) from error
        raise Unavailable("this machine refused", detail=str(error)) from error

"""The folder of one instance: its identity file, its log, and the lock that makes its holder the only actor."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from providers.errors import Misconfigured, Unavailable
from providers.instances import Identity

LOCK_POLL_SECONDS = 0.02
LOG_TAIL_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Record:
    """What ``identity.json`` says: whose instance this is, where it listens, and which process it is."""

    identity: Identity
    token: str
    """Tells this instance from earlier and later ones of the same name."""
    address: str
    port: int
    pid: int
    birth: str
    created_at: datetime

    def to_json(self) -> str:
        identity = self.identity
        return json.dumps(
            {
                "fleetId": identity.fleet_id,
                "proxyUid": str(identity.proxy_uid),
                "namespace": identity.namespace,
                "name": identity.name,
                "instanceHash": identity.instance_hash,
                "token": self.token,
                "address": self.address,
                "port": self.port,
                "pid": self.pid,
                "birth": self.birth,
                "createdAt": self.created_at.isoformat(),
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Raises ValueError, KeyError or TypeError when this is not what ``to_json`` wrote."""
        raw = json.loads(text)
        return cls(
            identity=Identity(
                fleet_id=raw["fleetId"],
                proxy_uid=UUID(raw["proxyUid"]),
                namespace=raw["namespace"],
                name=raw["name"],
                instance_hash=raw["instanceHash"],
            ),
            token=raw["token"],
            address=raw["address"],
            port=int(raw["port"]),
            pid=int(raw["pid"]),
            birth=raw["birth"],
            created_at=datetime.fromisoformat(raw["createdAt"]),
        )


@dataclass(frozen=True, slots=True)
class InstanceFolder:
    path: Path

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    @property
    def _identity_file(self) -> Path:
        return self.path / "identity.json"

    def read(self) -> Record | None:
        """Raises Unavailable or Unreadable when there is a record that can't be read: the instance may live on."""
        try:
            return Record.from_json(self._identity_file.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unavailable(f"the identity of {self.path.name} can't be read", detail=str(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(
                f"the identity of {self.path.name} is damaged", detail=f"{self._identity_file}: {error!r}"
            ) from error

    def write(self, record: Record) -> None:
        """All or nothing, and on the disk when it returns."""
        draft = self._identity_file.with_suffix(".new")
        with draft.open("w") as file:
            file.write(record.to_json())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._identity_file)
        directory = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self) -> None:
        """The identity goes last: what a crash leaves half removed is still known for what it was."""
        for child in self.path.iterdir():
            if child == self._identity_file:
                continue
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink()
        self._identity_file.unlink(missing_ok=True)
        self.path.rmdir()

    def log_tail(self) -> str:
        """The last lines that the server printed, on one line."""
        try:
            tail = self.log.read_bytes()[-LOG_TAIL_BYTES:]
        except FileNotFoundError:
            return ""
        return " | ".join(line.strip() for line in tail.decode(errors="replace").splitlines()[-5:] if line.strip())


def make_private(path: Path) -> None:
    """Create a folder, and those above it, that nobody else may look into."""
    if not path.is_dir():
        make_private(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


class Unreadable(Misconfigured):
    """The record is there and damaged. We write it all or nothing, so only a person can restore it."""


class Busy(Unavailable):
    """Someone else is acting on the folder."""


@contextmanager
def locked(path: Path, *, deadline: float, make: bool = False) -> Iterator[None]:
    """Be the only one, among threads and processes, to act on the folder ``path``.

    ``deadline`` is a ``time.monotonic()``; one that has passed means: now or not at all. Raises Busy when someone else
    holds it for too long, FileNotFoundError when there is no such folder and it is not to be made.
    """
    descriptor = _wait_for_lock(path, deadline=deadline, make=make)
    try:
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(path: Path, *, deadline: float, make: bool) -> int:
    while True:
        if make:
            make_private(path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if not make:
                raise
        else:
            if _try_lock(descriptor) and _is_still(path, descriptor):
                return descriptor
            os.close(descriptor)
        if time.monotonic() >= deadline:
            raise Busy(f"{path.name} is being worked on by another process")
        time.sleep(LOCK_POLL_SECONDS)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the folder that was locked has not been removed, or removed and made again, in between."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False

"""What the tests look at on this machine, without the driver's help: processes, ports, and the identity file."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from providers.instances import Instance
from providers.process.liveness import MARK

DEADLINE_SECONDS = 30


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "this never came true"
        time.sleep(0.02)


def processes_with(variable: str) -> list[int]:
    """All living processes that were started with this text in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and variable.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def processes_of(instance_name: str) -> list[int]:
    return processes_with(f"{MARK}={instance_name}")


def identity_file(root: Path, instance: Instance) -> Path:
    (path,) = root.rglob(f"{instance.identity.instance_name}/identity.json")
    return path


def pid_of(root: Path, instance: Instance) -> int:
    return int(json.loads(identity_file(root, instance).read_text())["pid"])


def rewrite_identity(root: Path, instance: Instance, **changes: object) -> None:
    path = identity_file(root, instance)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def kill(pid: int) -> None:
    """As a person would, or the OOM killer."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    fields = stat.rpartition(")")[2].split()
    return fields[0] != "Z" or int(fields[17]) > 1


def is_open_in(pid: int, path: Path) -> bool:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed since it was listed
            if descriptor.readlink() == path:
                return True
    return False


def answers(instance: Instance) -> bool:
    assert instance.address
    try:
        socket.create_connection((instance.address, instance.port or 0), timeout=5).close()
    except OSError:
        return False
    return True

"""The machine's processes: which are there, since when, and how to end a group of them.

Linux tells it through /proc. Elsewhere ``ps`` does, to the second and without environments.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROC = Path("/proc")
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """A process as the kernel lists it. ``birth`` tells it from any other that ever had its pid."""

    pid: int
    group: int
    status: str
    birth: str
    threads: int = 1

    @property
    def is_zombie(self) -> bool:
        """Dead, though not yet reaped. Its first thread alone proves nothing: the others may hold its sockets still."""
        return self.status in {"Z", "X"} and self.threads <= 1

    @property
    def is_suspended(self) -> bool:
        return self.status == "T"


def find_process(pid: int) -> Process | None:
    """The process that has this pid now, a zombie included."""
    if _has_proc():
        return _read_proc(pid)
    return next(_ask_ps("-p", str(pid)), None)


def group_members(group: int) -> list[Process]:
    """The living processes of a group."""
    everyone = _walk_proc() if _has_proc() else _ask_ps("-ax")
    return [process for process in everyone if process.group == group and not process.is_zombie]


def processes_with(variable: bytes) -> list[Process]:
    """The living processes that were started with ``variable`` (``NAME=value``); none where that can't be read."""
    everyone = _walk_proc() if _has_proc() else ()
    return [process for process in everyone if not process.is_zombie and environment_has(process.pid, variable)]


def environment_has(pid: int, variable: bytes) -> bool:
    """Whether the process was started with ``variable`` (``NAME=value``); False where that can't be read."""
    try:
        return variable in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def end_processes(members: Callable[[], list[Process]], *, patience: float, deadline: float) -> bool:
    """Ask all of them to end, and kill those that have not by ``patience``; True once there are none.

    ``members`` is asked anew each time, so a process that is forked meanwhile is ended too. Both limits are in terms of
    ``time.monotonic()``.
    """
    _signal(members(), signal.SIGTERM)
    while left := members():
        now = time.monotonic()
        if now >= deadline:
            return False
        if now >= patience:
            _signal(left, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    return True


def _signal(processes: list[Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue


@cache
def _has_proc() -> bool:
    return (PROC / "self" / "stat").exists()


@cache
def _boot_id() -> str:
    """Start times count from the boot: without it, two boots could give the same pid the same start time."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def _read_proc(pid: int) -> Process | None:
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return Process(
        pid=pid,
        group=int(fields[2]),
        status=fields[0],
        birth=f"{_boot_id()}/{fields[19]}",
        threads=int(fields[17]),
    )


def _walk_proc() -> Iterator[Process]:
    for entry in os.scandir(PROC):
        if entry.name.isdigit() and (process := _read_proc(int(entry.name))):
            yield process


def _ask_ps(*selection: str) -> Iterator[Process]:
    listing = subprocess.run(
        ["ps", *selection, "-o", "pid=,pgid=,stat=,lstart="],  # noqa: S607 - its place differs between systems
        capture_output=True,
        text=True,
        check=False,  # it fails when no process matches
        env={"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"},
        timeout=5,
    )
    for line in listing.stdout.splitlines():
        pid, group, status, birth = line.split(maxsplit=3)
        yield Process(pid=int(pid), group=int(group), status=status[0], birth=birth)

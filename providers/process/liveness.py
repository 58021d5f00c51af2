"""Which of the machine's processes are an instance's, and how they are ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from providers.errors import Unavailable
from providers.process.folder import Record
from providers.process.processes import (
    Process,
    end_processes,
    environment_has,
    find_process,
    group_members,
    processes_with,
)

MARK = "PROXYFLEET_INSTANCE"
"""A variable in the environment of an instance's processes: its name."""

END_SECONDS = 4
"""Longest time that ``end`` takes; the first half is for processes that end when asked."""


def leader_of(record: Record) -> Process | None:
    """The server's main process, if it is alive and the very one that was recorded."""
    process = find_process(record.pid)
    return process if process and process.birth == record.birth and not process.is_zombie else None


def members_of(record: Record) -> list[Process]:
    """All living processes of the instance.

    A number in use as a group is given to no new process. So while our leader is there, as a zombie even, the group is
    ours; when a stranger has its pid, the group is empty. When nobody has it, only the mark tells whose the rest is.
    """
    leader = find_process(record.pid)
    if leader is None:
        mark = _mark(record.identity.instance_name)
        return [process for process in group_members(record.pid) if environment_has(process.pid, mark)]
    return group_members(record.pid) if leader.birth == record.birth else []


def end(record: Record) -> None:
    """Leave none of the instance's processes. Raises Unavailable when one can't be killed."""
    _end(lambda: members_of(record), f"process {record.pid}")


def end_marked(instance_name: str) -> None:
    """The same without a record, by the mark alone. Where that can't be seen, on macOS, nothing is ended."""
    _end(lambda: processes_with(_mark(instance_name)), f"the processes of {instance_name}")


def _mark(instance_name: str) -> bytes:
    return f"{MARK}={instance_name}".encode()


def _end(members: Callable[[], list[Process]], name: str) -> None:
    now = time.monotonic()
    if not end_processes(members, patience=now + END_SECONDS / 2, deadline=now + END_SECONDS):
        raise Unavailable(f"{name} can't be ended")

"""Which of the machine's processes are an instance's, and how they are ended."""

from __future__ import annotations

import time

from providers.errors import Unavailable
from providers.process.folder import Record
from providers.process.processes import Process, end_processes, environment_has, find_process, group_members

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
        mark = f"{MARK}={record.identity.instance_name}".encode()
        return [process for process in group_members(record.pid) if environment_has(process.pid, mark)]
    return group_members(record.pid) if leader.birth == record.birth else []


def end(record: Record) -> None:
    """Leave none of the instance's processes. Raises Unavailable when one can't be killed."""
    now = time.monotonic()
    if not end_processes(lambda: members_of(record), patience=now + END_SECONDS / 2, deadline=now + END_SECONDS):
        raise Unavailable(f"process {record.pid} can't be ended")

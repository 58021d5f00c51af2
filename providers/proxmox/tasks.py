"""PVE's tasks: what takes longer than a request runs as one, and its exit status tells whether it worked."""

from __future__ import annotations

import random
from collections.abc import Callable
from urllib.parse import quote

from providers.errors import Unavailable
from providers.proxmox.api import Api, Refused

LOCK_SECONDS = 300
"""How long a lock that others hold is waited for: a full clone holds its template's storage for minutes."""

Submit = Callable[[], str | None]
"""Starts a task and names it; None when there is nothing to do any more."""


def follow(api: Api, upid: str) -> None:
    """Wait for the end of a task. Raises Refused with its exit status when it failed, Unavailable at the deadline."""
    node, kind = upid.split(":")[1], upid.split(":")[5]
    for _ in api.pauses(f"the task {kind}"):
        task = api.get(f"/nodes/{node}/tasks/{quote(upid, safe='')}/status")
        if task["status"] == "stopped":
            break
    exit_status = str(task.get("exitstatus", ""))
    if exit_status != "OK" and not exit_status.startswith("WARNINGS"):
        raise Refused(f"task {kind}", 500, exit_status or "ended without an exit status")


def run(api: Api, submit: Submit, *, lock_seconds: float = LOCK_SECONDS) -> None:
    """Submit a task and follow it; while somebody else holds a lock that it needs, submit it again.

    PVE itself waits for a lock for a second only. Raises Unavailable when the lock is held for longer than
    ``lock_seconds``.
    """
    for _ in api.pauses("a lock of Proxmox VE", limit=lock_seconds):
        try:
            if upid := submit():
                follow(api, upid)
        except Refused as refused:
            if not is_locked(refused):
                raise
            held = refused
        else:
            return
        api.wait(random.uniform(0, 0.2), "a lock of Proxmox VE")
    raise Unavailable(f"Proxmox VE is busy: {held.text}", detail=str(held), retry_after=30)


def is_locked(refused: Refused) -> bool:
    return refused.says("can't lock file", "VM is locked")

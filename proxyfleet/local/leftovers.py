"""Servers that a killed run left behind, found by the folder they work in."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import psutil

from proxyfleet.local.processes import wait_until


def stop_leftovers(name: str, folder: Path, *, grace_seconds: float = 10) -> None:
    """Stop every process called ``name`` whose working directory is ``folder``; all are gone on return.

    A pid file can't tell a server from the stranger that got its number since.
    """
    for number in (signal.SIGINT, signal.SIGKILL):
        found = _working_in(folder, name)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                # A server ends its own children in order; only what it left alone is ours to kill.
                if number == signal.SIGKILL or process.parent() not in found:
                    process.send_signal(number)
        if not found or wait_until(lambda: not _working_in(folder, name), grace_seconds):
            return


def _working_in(folder: Path, name: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _works_in(process, folder, name)]


def _works_in(process: psutil.Process, folder: Path, name: str) -> bool:
    try:
        return bool(process.name() == name and process.cwd() == str(folder))
    except psutil.Error:  # gone meanwhile, a zombie, or not ours to look at
        return False

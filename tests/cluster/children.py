"""Starts a program of the cluster and waits until it is ready."""

from __future__ import annotations

from pathlib import Path

from proxyfleet.local.processes import Child, Guard, Program, wait_until
from tests.cluster.errors import ClusterError

START_SECONDS = 90


def start(program: Program, guard: Guard, log: Path) -> Child:
    """What it prints is added to ``log``. Raises ClusterError with the end of it when the program does not come up."""
    with log.open("ab") as output:
        child = Child(program, guard, output=output)
    if wait_until(lambda: program.ready() or child.poll() is not None, START_SECONDS) and child.poll() is None:
        return child
    child.stop()
    end = log.read_text(errors="replace")[-2000:].strip()
    raise ClusterError(f"{program.name} did not start; the end of {log}:\n{end}")

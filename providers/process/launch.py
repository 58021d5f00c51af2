"""Start a detached process in two steps, so that it can be recorded in between: see ``launcher``."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from providers.errors import Misconfigured, Unavailable

LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, slots=True)
class Launch:
    """A process that has a pid and its own session, and waits to be let go."""

    pid: int
    program: str
    _go: int
    _report: int
    _deadline: float

    def let_go(self) -> None:
        """It becomes the server and is on its own. Raises Misconfigured when its program can't be run."""
        os.write(self._go, b"g")
        if complaint := _read(self._report, self._deadline):
            raise Misconfigured(f"{self.program} can't be started: {complaint}")


@contextmanager
def launching(
    command: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str], deadline: float
) -> Iterator[Launch]:
    """A process that is about to run ``command`` in ``folder``; it ends with this block unless it was let go.

    It inherits nothing but the log as its output, and only ``environment``. ``deadline`` is a ``time.monotonic()``.
    """
    # The launcher prints in the server's stead until it becomes it, so that its own failure is in the log too.
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LAUNCHER), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=folder,
            env=dict(environment),
        )
    finally:
        os.close(output)
    with process:
        assert process.stdin
        assert process.stdout
        go, report = process.stdin.fileno(), process.stdout.fileno()
        try:
            pid = _read(report, deadline, until=b"\n")
            if not pid:
                raise Unavailable("a process could not be started", detail=f"the launcher printed nothing; see {log}")
            yield Launch(int(pid), command[0], go, report, deadline)
        finally:
            process.kill()  # a launcher that hangs would be waited for without end; one that worked is gone already


def _read(descriptor: int, deadline: float, until: bytes = b"") -> str:
    """What arrives up to ``until``, or up to the end."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN | select.POLLHUP)
    received = b""
    while poller.poll(max(0, deadline - time.monotonic()) * 1000):
        chunk = os.read(descriptor, 1024)
        received += chunk
        if not chunk or (until and received.endswith(until)):
            return received.decode(errors="replace").strip()
    raise Unavailable("a process took too long to start")

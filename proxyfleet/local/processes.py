"""Child processes that don't outlive their parent, each in a session and process group of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

from proxyfleet.local import guard


@dataclass(frozen=True, slots=True)
class Program:
    """A process to start and keep."""

    name: str
    argv: Sequence[str]
    ready: Callable[[], bool] = lambda: True
    """Asked until true before the next program starts. Returns at once."""
    once: bool = False
    """Runs to its end, like a migration; the next program starts when it succeeded."""
    plain: bool = False
    """Its output is meant for the person who watches, and printed as it is."""
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10
    """How long it may take to end after ``stop_signal`` before its process group is killed."""
    uid: int | None = None


class Guard:
    """Kills the children when we die unexpectedly; a process of its own that waits for the end of its input."""

    def __enter__(self) -> Self:
        # -I and -S: it imports the standard library only, and starts in a few milliseconds.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._pipe.close()
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def _pipe(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        # Without a guard we still stop our children in order: a killed one is no reason to fail.
        with contextlib.suppress(BrokenPipeError):
            self._pipe.write(line)


class Child:
    """A started program. Its pid is its process group's number too."""

    def __init__(self, program: Program, guard: Guard, *, output: int | IO[bytes]) -> None:
        self.program = program
        self._guard = guard
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            program.argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=program.uid,
            group=program.uid,
            extra_groups=None if program.uid is None else [],
        )
        guard.watch(self.process.pid)

    def poll(self) -> int | None:
        """Its exit status once it has ended, after what was left of its process group is killed; else None."""
        if self.process.returncode is None and self.process.poll() is not None:
            # A group that has members keeps its number: it can't be a stranger's yet.
            self.kill()
            self._guard.forget(self.process.pid)
        return self.process.returncode

    def interrupt(self) -> None:
        """Ask it to end. Its own children are its own to end, hence not the whole group."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(self.program.stop_signal)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and kill its process group when it takes longer than its grace."""
        self.interrupt()
        if not wait_until(lambda: self.poll() is not None, self.program.grace_seconds):
            self.kill()
            wait_until(lambda: self.poll() is not None, 10)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Ask every few milliseconds; false when ``condition`` did not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True

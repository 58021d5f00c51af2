"""Starts programs in order, keeps them running, passes on what they print, and stops them in reverse order."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import IO

from proxyfleet.local.errors import LocalError
from proxyfleet.local.output import Lines, Output
from proxyfleet.local.processes import Child, Guard, Program

READY_SECONDS = 60
WATCH_SECONDS = 1.0
"""How often we look whether anybody is left that we run for."""

FIRST_RESTART_SECONDS = 1.0
LAST_RESTART_SECONDS = 30.0
STEADY_SECONDS = 60
"""Having run for so long, a program is restarted as if it had never failed before."""

DOUBLED_SIGNAL_SECONDS = 1
"""``make`` passes on a signal that its whole group has got already: so soon, a second one is no second wish."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(eq=False)
class _Service:
    program: Program
    child: Child
    started_at: float
    up: bool = False
    failures: int = 0
    restart_at: float | None = None
    lines: Lines = field(default_factory=Lines)

    @property
    def pipe(self) -> IO[bytes]:
        assert self.child.process.stdout is not None
        return self.child.process.stdout


class Supervisor:
    """Runs ``programs`` until a signal asks for the end; a second signal kills those that are slow to stop.

    One thread: whatever happens wakes the same selector.
    """

    def __init__(self, programs: Sequence[Program], stream: IO[bytes]) -> None:
        self._programs = programs
        plain = {program.name for program in programs if program.plain}
        self._output = Output(stream, [program.name for program in programs], plain=plain)
        self._services: list[_Service] = []
        self._selector = selectors.DefaultSelector()
        self._stop_requested_at: float | None = None
        self._impatient = False
        self._parent = os.getppid()

    @property
    def _stopping(self) -> bool:
        return self._stop_requested_at is not None or self._output.reader_is_gone or self._make_is_gone

    @property
    def _make_is_gone(self) -> bool:
        """Was the ``make`` killed that a person would interrupt? Any other parent may leave us to ourselves."""
        return "MAKELEVEL" in os.environ and os.getppid() != self._parent

    def run(self) -> None:
        """Returns after an orderly stop. Raises LocalError, after stopping all, when a program does not come up."""
        with self._selector, self._signals_wake_us(), Guard() as self._guard:
            try:
                for program in self._programs:
                    if not self._stopping:
                        self._bring_up(program)
                while not self._stopping:
                    self._turn(WATCH_SECONDS)
            finally:
                self._stop_requested_at = self._stop_requested_at or time.monotonic()
                self._services = [service for service in self._services if service.restart_at is None]
                while self._services:
                    self._stop(self._services[-1])

    def _bring_up(self, program: Program) -> None:
        """Start ``program`` and wait until it is ready, or has succeeded if it runs once."""
        service = _Service(program, self._start(program), time.monotonic())
        self._services.append(service)
        self._watch(service)
        deadline = service.started_at + READY_SECONDS
        while not self._stopping:
            self._turn(0.05)
            status = service.child.process.returncode
            if status == 0 and program.once:
                return
            if status is not None:
                raise LocalError(f"{program.name} {_ending(status)} before it was ready; its output is above.")
            if not program.once and program.ready():
                service.up = True
                self._output.say(program.name, f"ready after {time.monotonic() - service.started_at:.1f} s")
                return
            if not program.once and time.monotonic() > deadline:
                raise LocalError(f"{program.name} was not ready after {READY_SECONDS} s; its output is above.")

    def _start(self, program: Program) -> Child:
        try:
            return Child(program, self._guard, output=subprocess.PIPE)
        except OSError as error:
            raise LocalError(f"{program.name} can't be started: {error}") from error

    def _watch(self, service: _Service) -> None:
        os.set_blocking(service.pipe.fileno(), False)
        self._selector.register(service.pipe, selectors.EVENT_READ, partial(self._pass_on, service))

    def _turn(self, seconds: float) -> None:
        """Wait for something to happen, at most ``seconds``, and deal with it."""
        restarts = [
            service.restart_at - time.monotonic() for service in self._services if service.restart_at is not None
        ]
        for key, _ in self._selector.select(min([seconds, *restarts])):
            key.data()
        for service in list(self._services):
            if service.restart_at is not None:
                self._restart_if_due(service)
            elif (status := service.child.poll()) is not None:
                self._bury(service, status)
        if os.getpid() == 1:
            self._reap_orphans()

    def _pass_on(self, service: _Service) -> bool:
        """Print what the program has written. False when there is nothing left to read for now."""
        try:
            data = os.read(service.pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        self._output.print(service.program.name, service.lines.feed(data))
        if not data:
            self._hang_up(service)
        return bool(data)

    def _hang_up(self, service: _Service) -> None:
        self._output.print(service.program.name, service.lines.finish())
        self._selector.unregister(service.pipe)
        service.pipe.close()

    def _bury(self, service: _Service, status: int) -> None:
        while not service.pipe.closed and self._pass_on(service):
            pass
        if not service.pipe.closed:  # held open by a process that is about to die, or that left the group
            self._hang_up(service)
        if self._stopping or not service.up:
            self._services.remove(service)
            return
        lived = time.monotonic() - service.started_at
        service.failures = 1 if lived > STEADY_SECONDS else service.failures + 1
        delay = min(FIRST_RESTART_SECONDS * 2 ** (service.failures - 1), LAST_RESTART_SECONDS)
        service.restart_at = time.monotonic() + delay
        self._output.say(service.program.name, f"{_ending(status)}; starting it again in {delay:g} s")

    def _restart_if_due(self, service: _Service) -> None:
        now = time.monotonic()
        if service.restart_at is None or now < service.restart_at:
            return
        service.child, service.started_at, service.restart_at = self._start(service.program), now, None
        service.lines = Lines()
        self._watch(service)

    def _stop(self, service: _Service) -> None:
        service.child.interrupt()
        deadline = time.monotonic() + service.program.grace_seconds
        while service in self._services:
            if self._impatient or time.monotonic() > deadline:
                service.child.kill()
            self._turn(0.05)

    def _reap_orphans(self) -> None:
        """As a container's first process we inherit every process whose parent is gone."""
        ours = {service.child.process.pid for service in self._services} | {self._guard.pid}
        while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if dead.si_pid in ours:
                return
            os.waitpid(dead.si_pid, 0)

    @contextmanager
    def _signals_wake_us(self) -> Iterator[None]:
        receiver, sender = socket.socketpair()
        os.set_blocking(sender.fileno(), False)
        handlers = dict.fromkeys(STOP_SIGNALS, self._on_stop_signal) | {signal.SIGCHLD: lambda *_: None}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        earlier = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        self._selector.register(receiver, selectors.EVENT_READ, partial(receiver.recv, 4096))
        try:
            with receiver, sender:
                yield
        finally:
            signal.set_wakeup_fd(earlier)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_stop_signal(self, *_: object) -> None:
        now = time.monotonic()
        self._stop_requested_at = self._stop_requested_at or now
        self._impatient = now - self._stop_requested_at > DOUBLED_SIGNAL_SECONDS


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    name = next((known.name for known in signal.Signals if known == -status), f"signal {-status}")
    return f"was killed by {name}"

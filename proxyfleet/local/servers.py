"""PostgreSQL and Valkey for as long as a ``with`` block: what tests and scripts run on."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from proxyfleet.local.errors import LocalError
from proxyfleet.local.folders import remove_runtime_folder
from proxyfleet.local.lock import exclusive
from proxyfleet.local.postgres import Postgres
from proxyfleet.local.processes import Child, Guard, Program, wait_until
from proxyfleet.local.valkey import Valkey

START_SECONDS = 30


class LocalServers:
    """Both servers on the data in ``var``; what they print goes to ``var/<name>.log``.

    ``throwaway`` trades safety against power cuts for speed.
    """

    def __init__(self, var: Path, *, throwaway: bool = False) -> None:
        self._var = var
        self._postgres = Postgres(var, throwaway=throwaway)
        self._valkey = Valkey(var)
        self._stack = ExitStack()

    @property
    def database_url(self) -> str:
        return self._postgres.url

    @property
    def broker_url(self) -> str:
        """For Celery."""
        return self._valkey.url

    def __enter__(self) -> Self:
        """Returns when both answer. Raises LocalError when one does not come up."""
        with ExitStack() as stack:
            stack.enter_context(exclusive(self._var))
            stack.callback(remove_runtime_folder, self._var)
            self._postgres.prepare()
            self._valkey.prepare()
            guard = stack.enter_context(Guard())
            for program in (self._postgres.program, self._valkey.program):
                self._start(program, guard, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self, program: Program, guard: Guard, stack: ExitStack) -> None:
        log = self._var / f"{program.name}.log"
        with log.open("wb") as output:
            child = Child(program, guard, output=output)
        stack.callback(child.stop)
        wait_until(lambda: program.ready() or child.poll() is not None, START_SECONDS)
        if not program.ready():
            raise LocalError(f"{program.name} did not start; the end of {log}:\n{log.read_text()[-2000:]}")

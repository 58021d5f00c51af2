"""A part of the cluster that runs in the background until it is told to end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from providers.process.processes import Process, find_process
from proxyfleet.local.folders import private_folder
from proxyfleet.local.processes import wait_until
from tests.cluster.errors import ClusterError
from tests.cluster.node import ROOT

START_SECONDS = 120
STOP_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Daemon:
    """``python -m tests.cluster serve NAME``, on record in ``folder`` by process number and time of birth."""

    name: str
    folder: Path

    @property
    def _record(self) -> Path:
        return self.folder / f"{self.name}.json"

    def process(self) -> Process | None:
        """The very process that was recorded, if it is alive; never a stranger that got its number since."""
        try:
            record = json.loads(self._record.read_text())
        except FileNotFoundError:
            return None
        found = find_process(record["pid"])
        return found if found and found.birth == record["birth"] and not found.is_zombie else None

    def start(self) -> None:
        """Returns when it is ready. Raises ClusterError with what it said when it does not come up."""
        log = private_folder(self.folder) / f"{self.name}.log"
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster", "--state", str(self.folder), "serve", self.name],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        started = find_process(child.pid)
        assert started is not None, "a child that nobody waited for is listed, be it as a zombie"
        self._record.write_text(json.dumps({"pid": started.pid, "birth": started.birth}))
        if not wait_until(lambda: self.is_ready or child.poll() is not None, START_SECONDS) or not self.is_ready:
            self.stop()
            raise ClusterError(f"The {self.name} did not start: {log.read_text(errors='replace').strip()[-3000:]}")

    @property
    def _ready(self) -> Path:
        return self.folder / f"{self.name}.ready"

    @property
    def is_ready(self) -> bool:
        return self._ready.exists() and self.process() is not None

    def announce(self) -> None:
        """Called by the daemon itself, once it is ready."""
        self._ready.touch()

    def stop(self) -> None:
        """End it, if it runs. Raises ClusterError when it doesn't."""
        process = self.process()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            if not wait_until(lambda: self.process() is None, STOP_SECONDS):
                raise ClusterError(f"Process {process.pid}, the {self.name}, does not end.")
        self._record.unlink(missing_ok=True)
        self._ready.unlink(missing_ok=True)

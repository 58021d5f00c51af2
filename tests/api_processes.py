"""API processes on servers of their own, all of which can be stopped, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from proxyfleet.local.addresses import Address, free_port
from proxyfleet.local.processes import wait_until
from proxyfleet.local.servers import LocalServers

ROOT = Path(__file__).parent.parent
TOKEN = "of-the-tests-of-API-processes"


class Deployment:
    """``processes`` of the API on servers in ``folder``; ``fleet`` is a program that fills the new database."""

    def __init__(self, folder: Path, *, processes: int, fleet: str) -> None:
        self.folder = folder
        self.addresses = [Address("127.0.0.1", free_port()) for _ in range(processes)]
        self._fleet = fleet
        self._running: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()

    def start(self) -> None:
        servers = self._stack.enter_context(LocalServers(self.folder))
        self.environment = os.environ | {
            "PROXYFLEET_DATABASE_URL": servers.database_url,
            "PROXYFLEET_BROKER_URL": servers.broker_url,
            "PROXYFLEET_DISCOVERY_TOKEN": TOKEN,
            "PROXYFLEET_STATE_DIR": str(self.folder),
        }
        if not (self.folder / "made").exists():
            self.manage("migrate", "--verbosity", "0")
            self.manage("shell", "--no-imports", "--command", self._fleet)
            (self.folder / "made").touch()
        self._running = [self._serve(address) for address in self.addresses]
        for address in self.addresses:
            assert wait_until(address.answers, 60), f"nothing answers at {address}"

    def manage(self, *arguments: str) -> str:
        """What a management command printed."""
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def kill(self, number: int) -> None:
        """``kill -9`` of one process and its workers, whatever they are at."""
        os.killpg(self._running[number].pid, signal.SIGKILL)
        self._running[number].wait()

    def restart(self, number: int) -> None:
        """Start again one that was killed."""
        self._running[number] = self._serve(self.addresses[number])
        assert wait_until(self.addresses[number].answers, 60), f"nothing answers at {self.addresses[number]}"

    def program(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        """A program of the tests on the same servers; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def stop(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(30)
        self._stack.close()

    def _serve(self, address: Address) -> subprocess.Popen[bytes]:
        where = ["--host", address.host, "--port", str(address.port)]
        size = ["--workers", "1", "--blocking-threads", "4", "--log-level", "warning"]
        command = [sys.executable, "-m", "granian", "--interface", "wsgi", *where, *size, "proxyfleet.wsgi:application"]
        with (self.folder / "web.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

"""Web, worker and beat as in production, each with metrics and a log of its own, on servers of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import requests

from proxyfleet.local.addresses import Address, free_port
from proxyfleet.local.processes import wait_until
from proxyfleet.local.programs import programs
from proxyfleet.local.servers import LocalServers

ROOT = Path(__file__).parent.parent
TOKEN = "of-the-tests-of-the-products-processes"
START_SECONDS = 120
PROVIDERS = "providers: [{name: here, type: process, process: {}}]\n"
GROUPS = ("web", "worker", "beat")


class Product:
    """What runs, by name. Each group of processes counts in a folder of its own, as containers do."""

    def __init__(self, folder: Path, *, children: int = 2, **settings: str) -> None:
        """``settings`` are variables of the environment."""
        self.folder = folder
        self.address = Address("127.0.0.1", free_port())
        self.metrics = {name: Address("127.0.0.1", free_port()) for name in GROUPS} | {"web": self.address}
        self._children = children
        self._settings = settings
        self._stack = ExitStack()
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str) -> None:
        """These groups, the first of which also makes the servers and the database."""
        if not self.running:
            servers = self._stack.enter_context(LocalServers(self.folder / "servers", throwaway=True))
            (self.folder / "providers.yaml").write_text(PROVIDERS)
            inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PROXYFLEET_", "OTEL"))}
            self._environment = inherited | {
                "PROXYFLEET_DATABASE_URL": servers.database_url,
                "PROXYFLEET_BROKER_URL": servers.broker_url,
                "PROXYFLEET_SECRET_KEY": "of-the-tests-of-the-products-processes",
                "PROXYFLEET_HTTPS": "false",
                "PROXYFLEET_DISCOVERY_TOKEN": TOKEN,
                "PROXYFLEET_PROVIDERS_CONFIG": str(self.folder / "providers.yaml"),
                "PROXYFLEET_STATE_DIR": str(self.folder / "state"),
                "PROXYFLEET_WORKER_CONCURRENCY": str(self._children),
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "PYTHONUNBUFFERED": "1",
            }
            self._environment |= self._settings
            self.manage("migrate", "--verbosity", "0")
        table = {program.name: program for program in programs(self.address, self.folder, cluster_sync=False)}
        for name in names:
            with (self.folder / f"{name}.log").open("ab") as log:
                self.running[name] = subprocess.Popen(
                    table[name].argv, cwd=ROOT, env=self.environment(name), stdout=log, stderr=subprocess.STDOUT
                )
        for name in names:
            assert wait_until(self.metrics[name].accepts, START_SECONDS), self.log(name)

    def environment(self, group: str) -> Mapping[str, str]:
        return self._environment | {
            "PROXYFLEET_METRICS_DIR": str(self.folder / f"metrics-{group}"),
            "PROXYFLEET_METRICS_ADDR": str(self.metrics[group]),
        }

    def manage(self, *arguments: str) -> str:
        """What a management command printed."""
        command = [sys.executable, "manage.py", *arguments]
        ran = subprocess.run(command, cwd=ROOT, env=self._environment, check=True, stdout=subprocess.PIPE, text=True)
        return ran.stdout

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def call(self, method: str, path: str, body: object = None) -> requests.Response:
        return requests.request(
            method,
            f"{self.address.local_url}/v1/{path}",
            json=body,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=60,
        )

    def proxies(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.call("GET", "proxies").json()["items"]
        return items

    def stop(self, *names: str) -> None:
        for name in names or tuple(reversed(self.running)):
            self.running[name].terminate()
            self.running.pop(name).wait(60)

    def close(self) -> None:
        """Stop all that runs, the proxies included."""
        script = (
            "from proxyfleet.fleet.backends import providers\n"
            "here = providers().get('here')\n"
            "for instance in here.list(): here.delete(instance.provider_id)"
        )
        with self._stack:
            self.stop()
            self.manage("shell", "--no-imports", "--command", script)

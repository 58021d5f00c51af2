"""The whole product against a real cluster: its own processes, the bridge included, as `make run` starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests

from proxyfleet.local.addresses import Address, free_port
from proxyfleet.local.processes import wait_until

ROOT = Path(__file__).parents[2]
START_SECONDS = 180
STOP_SECONDS = 90
TOKEN = "of-the-tests-on-a-node"


class Product:
    """Runs on state in ``folder`` with these settings (names without the prefix), as long as a ``with`` block."""

    def __init__(self, folder: Path, *, kubeconfig: Path, **settings: str) -> None:
        self._address = Address("127.0.0.1", free_port())
        self._log = folder / "product.log"
        ours = {
            "STATE_DIR": str(folder / "var"),
            "DISCOVERY_ADDR": str(self._address),
            "DISCOVERY_TOKEN": TOKEN,
            "SYNC_ADDR": f"127.0.0.1:{free_port()}",
            "CLUSTER_SYNC": "true",
        }
        self._environment = _without_ours(os.environ) | {"KUBECONFIG": str(kubeconfig)}
        self._environment |= {f"PROXYFLEET_{name}": value for name, value in (ours | settings).items()}

    def __enter__(self) -> Self:
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "proxyfleet.local", "run"],
                cwd=ROOT,
                env=self._environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        if not wait_until(lambda: self._process.poll() is not None or self._address.answers(), START_SECONDS):
            self._stop()
        assert self._process.poll() is None, self.told()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def kill(self) -> None:
        """As a crash would: the instances of the provider `process` live on, the rest ends by its guard."""
        self._process.kill()
        self._process.wait(STOP_SECONDS)

    def told(self) -> str:
        return self._log.read_text(errors="replace")

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The API's answer. Raises requests.HTTPError when it refuses."""
        answer = requests.request(
            method,
            f"{self._address.local_url}/v1/{path}",
            json=body,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=10,
        )
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def _stop(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(STOP_SECONDS)


def _without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(("PROXYFLEET_", "DJANGO"))}

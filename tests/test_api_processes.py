"""Four API processes, thirty-two clients, twenty slots: what is promised of leases, asked over HTTP.

What a client knows bounds what was true at the server. A lease was certainly out from the moment that its answer came
until its release was sent; it was possibly out from the moment that it was asked for until its release was answered.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from proxyfleet.local.addresses import Address, free_port
from proxyfleet.local.processes import wait_until
from proxyfleet.local.servers import LocalServers

ROOT = Path(__file__).parent.parent
PROXIES, LEASES_EACH = 5, 4
SLOTS = PROXIES * LEASES_EACH
PROCESSES, CLIENTS = 4, 32
SECONDS = 6
TOKEN = "of-the-tests-of-API-processes"
pytestmark = pytest.mark.timeout(300)

MAKE_FLEET = f"""
from django.db import transaction
from proxyfleet.fleet.tests.world import new_world
with new_world() as world:
    for number in range({PROXIES}):
        endpoint = {{"host": f"192.0.2.{{number + 1}}"}}
        world.ready(world.declare(mode="External", endpoint=endpoint, maxLeases={LEASES_EACH}))
"""


class Deployment:
    """Servers on one folder, and API processes that can all be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.addresses = [Address("127.0.0.1", free_port()) for _ in range(PROCESSES)]
        self._stack = ExitStack()

    def start(self) -> None:
        servers = self._stack.enter_context(LocalServers(self.folder))
        environment = os.environ | {
            "PROXYFLEET_DATABASE_URL": servers.database_url,
            "PROXYFLEET_BROKER_URL": servers.broker_url,
            "PROXYFLEET_DISCOVERY_TOKEN": TOKEN,
            "PROXYFLEET_STATE_DIR": str(self.folder),
        }
        if not (self.folder / "made").exists():
            for command in (["migrate", "--verbosity", "0"], ["shell", "--no-imports", "--command", MAKE_FLEET]):
                subprocess.run([sys.executable, "manage.py", *command], cwd=ROOT, env=environment, check=True)
            (self.folder / "made").touch()
        for address in self.addresses:
            where = ["--host", address.host, "--port", str(address.port)]
            size = ["--workers", "1", "--blocking-threads", "4", "--log-level", "warning"]
            command = [
                sys.executable,
                "-m",
                "granian",
                "--interface",
                "wsgi",
                *where,
                *size,
                "proxyfleet.wsgi:application",
            ]
            self._stack.enter_context(ending(subprocess.Popen(command, cwd=ROOT, env=environment)))
        for address in self.addresses:
            assert wait_until(address.answers, 60), f"nothing answers at {address}"

    def stop(self) -> None:
        self._stack.close()


class ending:  # noqa: N801  used like a function
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path_factory.mktemp("deployment"))
    deployment.start()
    yield deployment
    deployment.stop()


@dataclass(frozen=True, slots=True)
class Held:
    """One lease, as its client saw it."""

    proxy: str
    asked: float
    granted: float
    released: float
    ended: float


@dataclass(slots=True)
class Observations:
    held: list[Held] = field(default_factory=list)
    refused: list[tuple[float, float]] = field(default_factory=list)
    """When "none available" was asked for, and when it was answered."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Client:
    def __init__(self, address: Address) -> None:
        self._url = f"{address.local_url}/v1/leases"
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Authorization"] = f"Bearer {TOKEN}"

    def lease(self, **wish: object) -> requests.Response:
        return self._session.post(self._url, json=wish, timeout=30)

    def read(self, lease_id: str) -> requests.Response:
        return self._session.get(f"{self._url}/{lease_id}", timeout=30)

    def release(self, lease_id: str) -> None:
        assert self._session.delete(f"{self._url}/{lease_id}", timeout=30).status_code == 204

    def crawl(self, seen: Observations, until: float) -> None:
        """Lease, hold for a moment, release, again and again."""
        while (asked := time.monotonic()) < until:
            answer = self.lease(ttlSeconds=60)
            granted = time.monotonic()
            if answer.status_code == 409:
                assert answer.json()["code"] == "no_proxy_available"
                with seen.lock:
                    seen.refused.append((asked, granted))
                continue
            assert answer.status_code == 201, answer.text
            time.sleep(random.uniform(0, 0.02))
            released = time.monotonic()
            self.release(answer.json()["leaseID"])
            lease = Held(answer.json()["proxy"]["id"], asked, granted, released, time.monotonic())
            with seen.lock:
                seen.held.append(lease)


def most_at_once(intervals: list[tuple[float, float]]) -> int:
    changes = sorted([(begin, 1) for begin, _ in intervals] + [(end, -1) for _, end in intervals])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def test_no_slot_is_leased_twice_and_none_is_denied_while_it_is_free(deployment: Deployment) -> None:
    seen = Observations()
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [Client(deployment.addresses[number % PROCESSES]) for number in range(CLIENTS)]
        for crawl in [pool.submit(client.crawl, seen, until) for client in clients]:
            crawl.result()

    assert len(seen.held) > CLIENTS
    for proxy in Counter(lease.proxy for lease in seen.held):
        certain = [(lease.granted, lease.released) for lease in seen.held if lease.proxy == proxy]
        assert most_at_once(certain) <= LEASES_EACH, f"{proxy} was leased too often"

    false = []
    for asked, answered in seen.refused:
        possible = [
            (max(lease.asked, asked), min(lease.ended, answered))
            for lease in seen.held
            if lease.asked < answered and lease.ended > asked
        ]
        if most_at_once(possible) < SLOTS:
            false.append((asked, answered))
    assert not false, f"{len(false)} of {len(seen.refused)} refusals came while a slot was free all along"


def test_every_lease_is_still_there_when_everything_was_restarted(deployment: Deployment) -> None:
    client = Client(deployment.addresses[0])
    batch = client.lease(count=PROXIES, ttlSeconds=600).json()["items"]
    singles = [client.lease(ttlSeconds=600).json() for _ in range(SLOTS - PROXIES - 1)]
    leases = {lease["leaseID"]: lease for lease in [*batch, *singles]}
    assert len(leases) == SLOTS - 1

    deployment.stop()
    deployment.start()

    for number, (lease_id, lease) in enumerate(leases.items()):
        answer = Client(deployment.addresses[number % PROCESSES]).read(lease_id)
        assert (answer.status_code, answer.json()) == (200, lease)
    last = Client(deployment.addresses[1]).lease()
    assert last.status_code == 201
    assert Client(deployment.addresses[2]).lease().status_code == 409
    for lease_id in [*leases, last.json()["leaseID"]]:
        client.release(lease_id)

"""Four API processes and thirty-two clients on fleets with no slot to spare: what is promised of leases, over HTTP.

What a client knows bounds what was true at the server. A lease was certainly out from the moment that its answer came
until its release was sent; it was possibly out from the moment that it was asked for until its release was answered.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests

from proxyfleet.local.addresses import Address
from tests.api_processes import TOKEN, Deployment

PROCESSES, CLIENTS = 4, 32
FLEETS = {"5x4": (5, 4), "4x8": (4, 8), "32x1": (32, 1), "1x32": (1, 32)}
"""Proxies and the leases of each. The first has too few slots; in the others there is one for each client."""
OVERCOMMITTED = "5x4"
pytestmark = pytest.mark.timeout(300)

MAKE_FLEETS = f"""
from proxyfleet.fleet.tests.world import new_world
with new_world() as world:
    for fleet, (proxies, leases) in {FLEETS}.items():
        for number in range(proxies):
            endpoint = {{"host": f"192.0.2.{{number + 1}}"}}
            spec = {{"mode": "External", "endpoint": endpoint, "maxLeases": leases, "attributes": {{"fleet": fleet}}}}
            world.ready(world.declare(**spec))
"""
DRIFT = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute(
        "select count(*) from leasing_proxyload load"
        " where active <> (select count(*) from leasing_lease lease where lease.proxy_id = load.proxy_id)"
    )
    drifted = cursor.fetchone()[0]
    cursor.execute("select sum(deadlocks) from pg_stat_database")
    print(drifted, cursor.fetchone()[0])
"""


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    length: float = request.config.getoption("--storm")
    return length


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path_factory.mktemp("deployment"), processes=PROCESSES, fleet=MAKE_FLEETS)
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
    """Goes on at another process when its own dies, with the same request."""

    def __init__(self, addresses: list[Address], number: int = 0) -> None:
        self._urls = [f"{address.local_url}/v1/leases" for address in addresses]
        self._number = number % len(addresses)
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Authorization"] = f"Bearer {TOKEN}"

    def lease(self, **wish: object) -> requests.Response:
        return self._call("POST", "", json=wish, headers={"Idempotency-Key": str(uuid.uuid4())})

    def read(self, lease_id: str) -> requests.Response:
        return self._call("GET", f"/{lease_id}")

    def renew(self, lease_id: str) -> None:
        assert self._call("POST", f"/{lease_id}/renew", json={"ttlSeconds": 60}).status_code == 200

    def release(self, lease_id: str) -> None:
        assert self._call("DELETE", f"/{lease_id}").status_code == 204

    def crawl(self, fleet: str, largest_batch: int, seen: Observations, until: float) -> None:
        """Lease, hold for a moment, perhaps renew, release, again and again."""
        while (asked := time.monotonic()) < until:
            count = random.randint(1, largest_batch)
            answer = self.lease(ttlSeconds=60, selector={"fleet": fleet}, count=count)
            granted = time.monotonic()
            if answer.status_code == 409:
                assert answer.json()["code"] == "no_proxy_available"
                with seen.lock:
                    seen.refused.append((asked, granted))
                continue
            assert answer.status_code == 201, answer.text
            leases = answer.json()["items"]
            assert len({lease["proxy"]["id"] for lease in leases}) == len(leases) <= count
            time.sleep(random.uniform(0, 0.02))
            for lease in leases:
                if random.random() < 0.2:
                    self.renew(lease["leaseID"])
                released = time.monotonic()
                self.release(lease["leaseID"])
                held = Held(lease["proxy"]["id"], asked, granted, released, time.monotonic())
                with seen.lock:
                    seen.held.append(held)

    def _call(self, method: str, path: str, **content: Any) -> requests.Response:
        for _ in self._urls:
            try:
                return self._session.request(method, self._urls[self._number] + path, timeout=30, **content)
            except requests.ConnectionError:
                self._number = (self._number + 1) % len(self._urls)
        raise AssertionError("every process is gone")


def most_at_once(intervals: list[tuple[float, float]]) -> int:
    changes = sorted([(begin, 1) for begin, _ in intervals] + [(end, -1) for _, end in intervals])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def storm(
    deployment: Deployment, fleet: str, seconds: float, *, largest_batch: int = 1, victim: int | None = None
) -> Observations:
    """All clients at once; after half of the time, ``victim`` is killed."""
    seen = Observations()
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [Client(deployment.addresses, number) for number in range(CLIENTS)]
        crawls = [pool.submit(client.crawl, fleet, largest_batch, seen, until) for client in clients]
        if victim is not None:
            time.sleep(seconds / 2)
            deployment.kill(victim)
        for crawl in crawls:
            crawl.result()
    assert len(seen.held) > CLIENTS
    for proxy in {lease.proxy for lease in seen.held}:
        certain = [(lease.granted, lease.released) for lease in seen.held if lease.proxy == proxy]
        assert most_at_once(certain) <= FLEETS[fleet][1], f"{proxy} was leased too often"
    assert deployment.manage("shell", "--no-imports", "--command", DRIFT).split() == ["0", "0"]
    return seen


def test_no_slot_is_leased_twice_and_none_is_denied_while_it_is_free(deployment: Deployment, seconds: float) -> None:
    proxies, leases_each = FLEETS[OVERCOMMITTED]
    seen = storm(deployment, OVERCOMMITTED, seconds, largest_batch=3)
    false = []
    for asked, answered in seen.refused:
        possible = [
            (max(lease.asked, asked), min(lease.ended, answered))
            for lease in seen.held
            if lease.asked < answered and lease.ended > asked
        ]
        if most_at_once(possible) < proxies * leases_each:
            false.append((asked, answered))
    assert not false, f"{len(false)} of {len(seen.refused)} refusals came while a slot was free all along"


@pytest.mark.parametrize("fleet", sorted(FLEETS.keys() - {OVERCOMMITTED}))
def test_nobody_is_denied_the_slot_that_is_left_for_him(deployment: Deployment, fleet: str, seconds: float) -> None:
    assert storm(deployment, fleet, seconds).refused == []


def test_a_process_that_is_killed_takes_no_slot_with_it(deployment: Deployment, seconds: float) -> None:
    assert storm(deployment, "4x8", seconds, victim=PROCESSES - 1).refused == []


def test_every_lease_is_still_there_when_everything_was_restarted(deployment: Deployment) -> None:
    client = Client(deployment.addresses[:1])
    proxies, slots = FLEETS[OVERCOMMITTED][0], 20
    wish: dict[str, object] = {"selector": f"fleet={OVERCOMMITTED}", "ttlSeconds": 600}
    batch = client.lease(count=proxies, **wish).json()["items"]
    singles = [client.lease(**wish).json() for _ in range(slots - proxies - 1)]
    leases = {lease["leaseID"]: lease for lease in [*batch, *singles]}
    assert len(leases) == slots - 1

    deployment.stop()
    deployment.start()

    for number, (lease_id, lease) in enumerate(leases.items()):
        answer = Client(deployment.addresses, number).read(lease_id)
        assert (answer.status_code, answer.json()) == (200, lease)
    last = Client(deployment.addresses, 1).lease(**wish)
    assert last.status_code == 201
    assert Client(deployment.addresses, 2).lease(**wish).status_code == 409
    for lease_id in [*leases, last.json()["leaseID"]]:
        client.release(lease_id)

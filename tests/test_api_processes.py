"""Four API processes and thirty-two clients on fleets with no slot to spare: what is promised of leases, over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.api_processes import Deployment
from tests.storm.clients import Client
from tests.storm.weather import CLIENTS, UNSTEADY, Fleet, storm

PROCESSES = 4
OVERCOMMITTED = Fleet("4x4", 4, 4)
FLEETS = [Fleet("4x8", 4, 8), Fleet("32x1", 32, 1), Fleet("1x32", 1, 32)]
"""With one slot for each client."""
pytestmark = pytest.mark.timeout(600)

MAKE_FLEETS = f"""
from proxyfleet.fleet.tests.world import new_world
with new_world() as world:
    for fleet, proxies, leases in {[(fleet.name, fleet.proxies, fleet.leases) for fleet in [OVERCOMMITTED, *FLEETS]]}:
        for number in range(proxies):
            endpoint = {{"host": f"192.0.2.{{number + 1}}"}}
            spec = {{"mode": "External", "endpoint": endpoint, "maxLeases": leases, "attributes": {{"fleet": fleet}}}}
            world.ready(world.declare(**spec))
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


@pytest.mark.parametrize("fleet", FLEETS, ids=lambda fleet: fleet.name)
def test_nobody_is_denied_the_slot_that_is_left_for_him(deployment: Deployment, fleet: Fleet, seconds: float) -> None:
    """Whatever happens to proxies that are there besides."""
    aftermath = storm(deployment, fleet, seconds, largest_batch=1, victim=PROCESSES - 1)
    sys.stderr.write(f"{aftermath}\n")
    assert not {kind: found for kind, found in aftermath.findings().items() if found}
    assert aftermath.notes.refused == []
    assert aftermath.notes.events["granted"] > CLIENTS


def test_no_slot_is_leased_twice_and_none_is_denied_while_it_is_free(deployment: Deployment, seconds: float) -> None:
    aftermath = storm(deployment, OVERCOMMITTED, seconds, largest_batch=3, victim=0)
    sys.stderr.write(f"{aftermath}\n")
    assert not {kind: found for kind, found in aftermath.findings().items() if found}
    assert aftermath.notes.refused
    assert aftermath.notes.events["granted"] > CLIENTS


def test_every_lease_is_still_there_when_everything_was_restarted(deployment: Deployment) -> None:
    clients = [Client(deployment.addresses, number) for number in range(PROCESSES)]
    fleet = FLEETS[0]
    proxies = [f"default/{fleet.name}-{number}" for number in range(UNSTEADY)]
    wish: dict[str, object] = {"selector": f"fleet={fleet.name}", "ttlSeconds": 600, "exclude": proxies}
    batch = clients[0].lease(count=fleet.proxies, **wish).body["items"]
    singles = [clients[0].lease(**wish).body for _ in range(fleet.slots - fleet.proxies - 1)]
    leases = {lease["leaseID"]: lease for lease in [*batch, *singles]}
    assert len(leases) == fleet.slots - 1

    deployment.stop()
    deployment.start()

    for number, (lease_id, lease) in enumerate(leases.items()):
        answer = clients[number % PROCESSES].read(lease_id)
        assert (answer.status, answer.body) == (200, lease)
    last = clients[1].lease(**wish)
    assert last.status == 201
    assert clients[2].lease(**wish).status == 409
    for lease_id in [*leases, last.body["leaseID"]]:
        clients[3].release(lease_id)
    for client in clients:
        client.close()

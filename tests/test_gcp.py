"""A fleet whose proxies are instances of Compute Engine: what its failures mean for a proxy, and what they never do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from providers.config import load_providers_config
from providers.errors import Unavailable
from providers.gcp.tests.requests import gcp_request
from providers.gcp.tests.standin.answers import invalid
from providers.gcp.tests.standin.backend import GceBackend
from providers.gcp.tests.standin.server import Fault, RateLimit, refused
from providers.instances import InstanceRequest, InstanceState
from providers.tests.backend import Life
from proxyfleet.conf import settings
from proxyfleet.fleet.models import Proxy, ProxyEvent
from proxyfleet.fleet.tests.world import GC_MIN_AGE, START, World, new_world

SAMPLES = Path(__file__).parents[1] / "deploy" / "samples"
STOCKOUT = "The zone 'europe-west1-b' does not have enough resources available to fulfill the request."


@pytest.fixture
def world(db: None) -> Iterator[World]:
    with new_world("gcp-eu", make_backend=GceBackend) as world:
        yield world


@pytest.fixture
def gce(world: World) -> GceBackend:
    assert isinstance(world.backend, GceBackend)
    return world.backend


def declare(world: World, **spec: Any) -> Proxy:
    return world.declare(provider="gcp-eu", **spec)


def provisioned(proxy: Proxy) -> tuple[str, str]:
    return next((c["reason"], c["message"]) for c in proxy.conditions if c["type"] == "Provisioned")


def test_a_proxy_comes_up_and_goes(world: World, gce: GceBackend) -> None:
    gce.lives.append(Life(provisioning_gets=3, addressless_gets=1, deleting_gets=3))
    proxy = world.ready(declare(world))
    assert proxy.address.startswith("34.")
    assert proxy.address_port == 3128
    Proxy.objects.filter(pk=proxy.pk).update(deletion_requested_at=world.now, next_reconcile_at=world.now)
    for _ in range(10):
        world.run()
        world.now += timedelta(seconds=5)
    assert not Proxy.objects.exists()
    assert not gce.machines()


def test_the_samples_come_up(world: World, gce: GceBackend) -> None:
    [entry] = [e for e in load_providers_config(SAMPLES / "providers-config.yaml").entries.values() if e.type == "gcp"]
    sample = yaml.safe_load((SAMPLES / "proxy_gcp.yaml").read_text())
    assert sample["spec"]["provider"] == entry.name
    world.ready(world.declare(sample["metadata"]["name"], **sample["spec"]))
    [machine] = gce.cloud.machines
    sent = {item["key"]: item["value"] for item in machine.body["metadata"]["items"]}
    assert sent["user-data"] == sample["spec"]["cloudInit"]["inline"]


def test_what_is_missing_fails_the_proxy_and_is_named(world: World) -> None:
    proxy = world.settle(declare(world, placement={"zone": "europe-west1-b"}))
    assert (proxy.phase, proxy.reason) == ("Failed", "InvalidRequest")
    assert proxy.message == "a provider of type gcp needs placement.machineType, placement.image"


def test_a_late_stockout_is_quota_exceeded_until_there_is_capacity(world: World, gce: GceBackend) -> None:
    gce.lives.extend([Life(provisioning_gets=2, fails=f"ZONE_RESOURCE_POOL_EXHAUSTED: {STOCKOUT}")] * 2)
    proxy = declare(world)
    told = f"{STOCKOUT} (ZONE_RESOURCE_POOL_EXHAUSTED)"

    tries = Counter[bool]()
    for _ in range(60):
        world.run()
        world.now += timedelta(seconds=10)
        proxy = world.read(proxy)
        assert proxy.phase == "Provisioning"
        tries[(proxy.reason, proxy.message) == ("QuotaExceeded", told)] += 1
    assert tries[True] > 50, "the proxy shows what it waits for"
    assert provisioned(proxy) == ("QuotaExceeded", told)
    assert ("ProviderError", "QuotaExceeded", told) in proxy.events.values_list("kind", "reason", "message")
    assert gce.server.calls["instances.insert"] < 12, "it is waited, not hammered"

    proxy = world.ready(world.settle(proxy, rounds=100, seconds=10))
    assert len(gce.machines()) == 1


def test_a_lost_insert_response_leads_to_one_instance(world: World, gce: GceBackend) -> None:
    gce.server.faults["instances.insert"].append(Fault(reset=True))
    proxy = world.ready(declare(world))
    assert [machine.provider_id for machine in gce.machines()] == [proxy.provider_id]
    assert gce.server.calls["instances.insert"] == 2


def test_an_unreachable_zone_neither_recreates_nor_collects_anything(world: World, gce: GceBackend) -> None:
    proxy = world.ready(declare(world))
    orphan = world.providers.get("gcp-eu").create(gcp_request(fleet_id=settings().fleet_id))
    before = gce.machines()
    calls = gce.server.calls.copy()
    gce.unreachable_zones.add(gce.zone)
    for told_in in ("unreachables", "warning"):
        gce.cloud.tells_unreachable = frozenset({told_in})
        for _ in range(20):
            world.now += timedelta(minutes=2)
            world.relist()
            world.run()
            assert world.collect_orphans() == []
        assert world.step(proxy).provider_id == proxy.provider_id
    assert gce.machines() == before
    assert gce.server.calls["instances.insert"] == calls["instances.insert"]
    assert gce.server.calls["instances.delete"] == calls["instances.delete"]

    gce.unreachable_zones.clear()
    world.now += GC_MIN_AGE
    assert [found.provider_id for found in world.collect_orphans()] == [orphan.provider_id]
    assert [machine.provider_id for machine in gce.machines()] == [proxy.provider_id]


def test_a_preempted_spot_instance_is_replaced(world: World, gce: GceBackend) -> None:
    proxy = world.ready(declare(world))
    [preempted] = gce.cloud.machines
    gce.cloud.stop(preempted.number, spot=True)
    world.relist()
    world.run()
    gone = proxy.events.filter(reason="InstanceStopped").values_list("message", flat=True)
    assert set(gone) >= {"Compute Engine says TERMINATED: preempted, or stopped by someone"}
    again = world.ready(proxy)
    assert [machine.provider_id for machine in gce.machines()] == [again.provider_id]
    assert again.provider_id != proxy.provider_id


def test_fifty_proxies_come_up_within_a_rate_limit(world: World, gce: GceBackend) -> None:
    """Half of them are let through in the first minute; those that wait do not hammer."""
    limit = gce.server.rate_limit = RateLimit(25, per=timedelta(minutes=1))
    proxies = [declare(world) for _ in range(50)]
    while len(gce.machines()) < 50:
        world.run(limit=1000)
        world.now += timedelta(seconds=15)
        assert world.now - START < timedelta(minutes=20)
    assert limit.refusals < 100
    assert not Proxy.objects.exclude(phase__in=("Pending", "Provisioning")).exists()
    assert Counter(machine.identity.proxy_uid for machine in gce.machines()) == {proxy.uid: 1 for proxy in proxies}


def test_fifty_creates_at_once_keep_within_a_rate_limit(world: World, gce: GceBackend) -> None:
    """Each comes back when it was told to: fewer are refused each time, and every one is made once."""
    limit = gce.server.rate_limit = RateLimit(20, per=timedelta(minutes=1))
    driver = gce.driver(fleet_id=settings().fleet_id)
    due = [(world.now, gcp_request(fleet_id=settings().fleet_id)) for _ in range(50)]

    def create(entry: tuple[datetime, InstanceRequest]) -> float | None:
        try:
            driver.create(entry[1])
        except Unavailable as error:
            return error.retry_after or 5  # a busy machine may not answer in time
        return None

    with ThreadPoolExecutor(50) as pool:
        while due:
            world.now = min(at for at, _ in due) + timedelta(seconds=1)
            at_once = [entry for entry in due if entry[0] <= world.now]
            waits = pool.map(create, at_once)
            due = [entry for entry in due if entry[0] > world.now]
            due += [
                (world.now + timedelta(seconds=wait), entry[1])
                for entry, wait in zip(at_once, waits, strict=True)
                if wait is not None
            ]
    assert len(gce.machines()) == 50
    assert limit.refusals < 100
    assert world.now - START < timedelta(minutes=5)


def test_cloud_init_shows_in_no_event_condition_or_log(
    world: World, gce: GceBackend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secret = "#cloud-config\npassword: hunter2-is-secret\n"

    def quote() -> None:
        raise invalid("resource.metadata.items[3].value", secret, "Not so.")

    gce.server.faults["instances.insert"].extend([refused(503, "backendError"), Fault(before=quote)])
    proxy = world.settle(declare(world, cloudInit={"inline": secret}))
    assert proxy.phase == "Failed"
    assert "resource.metadata" in proxy.message
    shown = [proxy.message, str(proxy.conditions), caplog.text]
    shown += [f"{event.reason} {event.message}" for event in ProxyEvent.objects.all()]
    assert not [text for text in shown if "hunter2" in text]


def test_one_that_is_stopping_is_waited_for(world: World, gce: GceBackend) -> None:
    proxy = world.ready(declare(world))
    [machine] = gce.cloud.machines
    machine.status = "STOPPING"
    world.relist()
    world.run()
    assert world.read(proxy).reason == "InstanceDeleting"
    assert gce.server.calls["instances.delete"] == 0
    gce.cloud.stop(machine.number)
    world.settle(proxy, rounds=3)
    assert gce.server.calls["instances.delete"] == 1
    assert [found.state for found in gce.machines()] != [InstanceState.STOPPED]

"""A fleet whose proxies are guests of Proxmox VE: what its failures mean for a proxy, and what they never show."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from providers.proxmox.tests.backend import PveBackend
from providers.proxmox.tests.standin.cluster import TOKEN, PveError
from providers.proxmox.tests.standin.server import Fault, breaking, raising
from proxyfleet.fleet.models import Proxy, ProxyEvent
from proxyfleet.fleet.tests.world import GC_MIN_AGE, World, new_world


@pytest.fixture
def world(db: None) -> Iterator[World]:
    with new_world("pve", make_backend=PveBackend) as world:
        yield world


@pytest.fixture
def pve(world: World) -> PveBackend:
    assert isinstance(world.backend, PveBackend)
    return world.backend


def declare(world: World, **spec: Any) -> Proxy:
    return world.declare(provider="pve", **spec)


def test_a_node_that_is_offline_neither_recreates_nor_collects_anything(world: World, pve: PveBackend) -> None:
    proxy = world.ready(declare(world))
    orphaned = world.ready(declare(world))
    Proxy.objects.filter(pk=orphaned.pk).delete()
    guests = set(pve.cluster.guests)
    pve.cluster.offline.add("pve1")
    world.now += GC_MIN_AGE
    world.relist()
    world.step(proxy)
    world.settle(proxy, rounds=5)
    world.collect_orphans()
    assert set(pve.cluster.guests) == guests
    assert world.read(proxy).phase == "Ready"
    pve.cluster.offline.clear()
    world.now += timedelta(minutes=5)
    [collected] = world.collect_orphans()
    assert collected.provider_id == orphaned.provider_id
    assert world.settle(proxy).provider_id == proxy.provider_id


def test_a_refused_privilege_is_shown_and_waited_out(world: World, pve: PveBackend) -> None:
    refusal = PveError(403, "Permission check failed (/vms/9000, VM.Clone)")
    pve.server.faults.append(Fault("POST .*/clone", before=raising(refusal)))
    proxy = world.settle(declare(world), rounds=2)
    assert (proxy.phase, proxy.reason) == ("Provisioning", "PermissionDenied")
    assert "VM.Clone" in proxy.message
    world.now += timedelta(minutes=5)
    world.ready(proxy)


def test_no_secret_shows_in_an_event_a_condition_or_a_log(
    world: World, pve: PveBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """Of proxies each of which meets a connection that breaks, at another call of its making."""
    caplog.set_level("DEBUG")
    for call in range(12):
        pve.server.faults.append(breaking("after", skip=call))
        proxy = declare(world, cloudInit={"inline": "#cloud-config\npassword: hunter2-is-secret\n"})
        world.settle(proxy, rounds=6, seconds=60)
        pve.server.faults.clear()
    rows = Proxy.objects.all()
    shown = [caplog.text, *(f"{row.message} {row.conditions}" for row in rows)]
    shown += [f"{event.reason} {event.message}" for event in ProxyEvent.objects.all()]
    assert len(rows) == 12
    assert "connectionpool" in caplog.text, "urllib3 logs its requests"
    for secret in ("hunter2", TOKEN.partition("=")[2]):
        assert not [text for text in shown if secret in text]

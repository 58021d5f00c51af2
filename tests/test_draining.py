"""Leases that are out hold a replacement or a deletion back, for as long as the proxy drains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from leasing import allocation, endings
from leasing.allocation import Granted, Wish
from leasing.ids import uuid7
from leasing.models import EndCause, EndedLease, Lease
from leasing.selectors import Selector
from proxyfleet.fleet import operations
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.tests.world import World, new_world

Leave = Callable[..., Proxy]
LEAVING = pytest.mark.parametrize(
    ("leave", "phase", "cause"),
    [
        (operations.replace, "Replacing", "proxy_replaced"),
        (operations.request_deletion, "Terminating", "proxy_deleted"),
    ],
    ids=["replaced", "deleted"],
)


@pytest.fixture
def world(db: None) -> Iterator[World]:
    with new_world() as world:
        yield world


def lease(world: World) -> list[Granted]:
    now = world.now
    wish = Wish(Selector(()), target="")
    return allocation.grant(wish, [uuid7(now)], now=now, expires_at=now + timedelta(hours=1))


@LEAVING
def test_a_lease_goes_on_until_the_drain_is_over(world: World, leave: Leave, phase: str, cause: str) -> None:
    proxy = world.ready(world.declare(drainSeconds=60))
    [held] = lease(world)
    leave(proxy.pk, actor="test", now=world.now)
    proxy = world.settle(proxy, rounds=5)
    assert (proxy.phase, proxy.reason) == (phase, "Draining")
    assert lease(world) == [], "no new leases"
    assert Lease.objects.filter(pk=held.id).exists()
    assert [machine.provider_id for machine in world.live(proxy.uid)] == [proxy.provider_id]
    world.now += timedelta(seconds=60)
    world.run()
    assert EndedLease.objects.get(pk=held.id).cause == cause
    assert proxy.provider_id not in {machine.provider_id for machine in world.live(proxy.uid)}


@LEAVING
def test_a_lease_given_back_ends_the_drain(world: World, leave: Leave, phase: str, cause: str) -> None:
    proxy = world.ready(world.declare(drainSeconds=3600))
    [held] = lease(world)
    leave(proxy.pk, actor="test", now=world.now)
    proxy = world.settle(proxy, rounds=2)
    assert proxy.phase == phase
    endings.release(held.id, cause=EndCause.RELEASED, now=world.now)
    world.now += timedelta(seconds=5)
    world.run()
    assert proxy.provider_id not in {machine.provider_id for machine in world.live(proxy.uid)}

"""The orphan GC deletes what nobody owns, and never anything else."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from providers.errors import Unavailable
from providers.instances import Identity, InstanceRequest
from providers.tests.backend import Call, Fault, refuse
from proxyfleet.fleet.models import ProviderState, Proxy, ProxyEvent
from proxyfleet.fleet.orphans import collect_orphans
from proxyfleet.fleet.tests.world import GC_MIN_AGE, World


def make_instance(world: World, **owner: object) -> str:
    """An instance that no run of the reconciler made; returns its providerID."""
    identity = {"fleet_id": "proxyfleet", "proxy_uid": uuid4(), "namespace": "default", "name": "lost"} | owner
    provider = world.backend.provider("mem", fleet_id=str(identity["fleet_id"]))
    instance = provider.create(InstanceRequest(Identity(**identity, instance_hash="0" * 16), port=3128))  # type: ignore[arg-type]
    return instance.provider_id


def ids(world: World) -> set[str]:
    return {machine.provider_id for machine in world.live()}


def test_an_instance_whose_row_is_gone_is_named_by_the_dry_run_and_removed_by_the_sweep(world: World) -> None:
    proxy = world.ready(world.declare())
    Proxy.objects.filter(pk=proxy.pk).delete()
    world.now += GC_MIN_AGE
    [named] = world.collect_orphans(dry_run=True)
    assert (named.provider_id, named.name, named.action) == (proxy.provider_id, proxy.name, "would delete")
    assert ids(world) == {proxy.provider_id}, "a dry run deletes nothing"
    assert not ProviderState.objects.exists()
    [deleted] = world.collect_orphans()
    assert (deleted.provider_id, deleted.action) == (proxy.provider_id, "deleted")
    assert ids(world) == set()
    assert ProxyEvent.objects.get(kind="OrphanDeleted").reason == "NoOwner"
    assert ProviderState.objects.get(entry="mem").orphans[0]["provider_id"] == proxy.provider_id


def test_one_made_this_second_and_one_of_another_fleet_stay(world: World) -> None:
    foreign = make_instance(world, fleet_id="elsewhere")
    world.now += timedelta(days=1)
    young = make_instance(world)
    assert world.collect_orphans() == []
    assert ids(world) == {foreign, young}
    world.now += GC_MIN_AGE - timedelta(seconds=1)
    assert world.collect_orphans() == []
    world.now += timedelta(seconds=1)
    assert [orphan.provider_id for orphan in world.collect_orphans()] == [young]
    assert ids(world) == {foreign}


def test_an_instance_that_its_proxy_has_moved_on_from_is_removed(world: World) -> None:
    proxy = world.ready(world.declare())
    left = make_instance(world, proxy_uid=proxy.uid)
    world.now += GC_MIN_AGE
    [orphan] = world.collect_orphans()
    assert orphan.provider_id == left
    assert ids(world) == {proxy.provider_id}
    assert ProxyEvent.objects.get(kind="OrphanDeleted").proxy == proxy


def test_what_an_interrupted_create_made_waits_for_its_proxy(world: World) -> None:
    proxy = world.declare()
    Proxy.objects.filter(pk=proxy.pk).update(creating_hash="0" * 16, creating_provider="mem")
    make_instance(world, proxy_uid=proxy.uid)
    world.now += GC_MIN_AGE
    assert world.collect_orphans() == []


def test_a_proxy_that_is_being_worked_on_is_left_alone(world: World) -> None:
    proxy = world.declare()
    make_instance(world, proxy_uid=proxy.uid)
    world.now += GC_MIN_AGE
    Proxy.objects.filter(pk=proxy.pk).update(claim_token=uuid4(), claim_expires_at=world.now + timedelta(seconds=1))
    assert world.collect_orphans() == []
    world.now += timedelta(seconds=2)
    assert len(world.collect_orphans()) == 1


def test_the_row_is_read_again_right_before_the_delete(world: World) -> None:
    first, second = make_instance(world), make_instance(world)
    world.now += GC_MIN_AGE
    uid = next(m.identity.proxy_uid for m in world.live() if m.provider_id == second)

    def an_owner_appears() -> None:
        Proxy.objects.create(uid=uid, name="back", provider="mem", provider_id=second, instance_hash="0" * 16)

    world.backend.faults[Call.DELETE].append(Fault(before=an_owner_appears))
    assert {orphan.provider_id: orphan.action for orphan in world.collect_orphans()} == {
        first: "deleted",
        second: "kept",
    }
    assert ids(world) == {second}


def test_one_sweep_deletes_only_so_many_oldest_first(world: World) -> None:
    made = []
    for _ in range(5):
        made.append(make_instance(world))
        world.now += timedelta(seconds=1)
    world.now += GC_MIN_AGE
    actions = [(orphan.provider_id, orphan.action) for orphan in world.collect_orphans(max_deletes=2)]
    assert actions == [(made[0], "deleted"), (made[1], "deleted"), *((left, "left") for left in made[2:])]
    assert ids(world) == set(made[2:])


def test_a_delete_that_fails_is_told_and_tried_again(world: World) -> None:
    made = make_instance(world)
    world.now += GC_MIN_AGE
    world.backend.faults[Call.DELETE].append(refuse(Unavailable("the host does not answer")))
    [orphan] = world.collect_orphans()
    assert (orphan.action, orphan.message) == ("failed", "the host does not answer")
    assert [orphan.action for orphan in world.collect_orphans()] == ["deleted"]
    assert made not in ids(world)


def test_a_part_that_does_not_answer_is_no_reason_to_delete_or_to_stop(world: World) -> None:
    made = make_instance(world)
    world.now += GC_MIN_AGE
    world.backend.unreachable_zones.add("memory")
    assert world.collect_orphans() == []
    assert "memory" in ProviderState.objects.get(entry="mem").orphans_error
    world.backend.unreachable_zones.clear()
    assert [orphan.provider_id for orphan in world.collect_orphans()] == [made]


def test_a_listing_that_fails_is_an_error_of_the_sweep(world: World) -> None:
    world.backend.faults[Call.LIST].append(refuse(Unavailable("down")))
    with pytest.raises(Unavailable):
        world.collect_orphans()


def test_a_slow_backend_does_not_keep_the_sweep_beyond_its_turn(world: World) -> None:
    for _ in range(3):
        make_instance(world)
    world.now += GC_MIN_AGE
    turns = iter([True, False, False])
    found = collect_orphans(
        "mem", world.providers.get("mem"), world.now, min_age=GC_MIN_AGE, max_deletes=10, has_time=lambda: next(turns)
    )
    assert [orphan.action for orphan in found] == ["deleted", "left", "left"]

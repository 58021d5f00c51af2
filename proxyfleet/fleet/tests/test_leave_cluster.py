"""What a cluster declared, when its bridge is off for good."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from proxyfleet.fleet import operations
from proxyfleet.fleet.models import ClusterMirror, Origin, Proxy
from proxyfleet.fleet.operations import OwnedByTheCluster
from proxyfleet.fleet.tests.world import World

SPEC = {"provider": "mem"}


def declare(world: World, namespace: str) -> Proxy:
    return operations.declare(
        namespace, "cr", SPEC, actor="cluster", now=world.now, origin=Origin.CLUSTER, generation=4
    )


def test_it_can_be_changed_only_once_it_is_taken_over(world: World) -> None:
    ClusterMirror.objects.create(cluster_uid="cluster")
    proxy, other = declare(world, "default"), declare(world, "elsewhere")
    proxy = world.ready(proxy)
    changes: list[Callable[[], Proxy]] = [
        lambda: operations.update(proxy.pk, SPEC, actor="ada", now=world.now),
        lambda: operations.request_deletion(proxy.pk, actor="ada", now=world.now),
        lambda: operations.skip_cleanup(proxy.pk, actor="ada", now=world.now),
    ]
    for change in changes:
        with pytest.raises(OwnedByTheCluster, match=r"manage\.py leave_cluster"):
            change()
    call_command("leave_cluster", namespace="default")
    taken = world.read(proxy)
    assert (taken.uid, taken.provider_id, taken.phase) == (proxy.uid, proxy.provider_id, "Ready")
    assert taken.events.latest("id").message == "origin: cluster → database"
    assert operations.update(proxy.pk, SPEC | {"maxLeases": 3}, actor="ada", now=world.now).generation == 5
    assert world.read(other).origin == Origin.CLUSTER
    assert ClusterMirror.objects.exists()

    call_command("leave_cluster", delete=True)
    for minutes in range(1, 9):
        world.now = timezone.now() + timedelta(minutes=minutes)
        world.run()
    assert list(Proxy.objects.all()) == [proxy]
    assert not ClusterMirror.objects.exists()


@pytest.mark.usefixtures("connected")
def test_nothing_is_taken_over_while_the_bridge_is_on(world: World) -> None:
    proxy = declare(world, "default")
    with pytest.raises(CommandError, match="PROXYFLEET_CLUSTER_SYNC=false"):
        call_command("leave_cluster")
    assert world.read(proxy).origin == Origin.CLUSTER

"""Delete: the order of its steps, crashes in between, refusals, and what must never be destroyed."""

from __future__ import annotations

import pytest

from providers.errors import InstanceNotFound, Misconfigured, PermissionDenied, Unavailable
from providers.proxmox import removal
from providers.proxmox.driver import ProxmoxProvider
from providers.proxmox.tests.conftest import Open, new_request
from providers.proxmox.tests.standin.cluster import ALL_PRIVILEGES, TEMPLATE, TOKEN, Cluster, Guest, PveError
from providers.proxmox.tests.standin.server import Fault, PveServer, breaking


@pytest.fixture
def instance(provider: ProxmoxProvider) -> str:
    return provider.create(new_request()).provider_id


def guest_of(cluster: Cluster, provider_id: str) -> Guest:
    return cluster.guests[int(provider_id.split("/")[3])]


def test_the_seed_goes_before_the_vm(
    provider: ProxmoxProvider, instance: str, cluster: Cluster, server: PveServer
) -> None:
    server.calls.clear()
    provider.delete(instance)
    changes = [call for call in server.calls if not call.startswith("GET")]
    assert [change.split("/")[0] + change.split("/")[-1][:4] for change in changes] == [
        "POST stop",
        "DELETE flee",
        f"DELETE {instance.split('/')[3][:4]}",
    ]
    assert set(cluster.guests) == {TEMPLATE}
    assert not cluster.storages["local"].files


@pytest.mark.parametrize("moment", ["before", "after"])
def test_it_survives_a_crash_between_every_two_calls(
    moment: str, provider: ProxmoxProvider, open_provider: Open, cluster: Cluster, server: PveServer
) -> None:
    broken = 0
    while True:
        provider_id = provider.create(new_request()).provider_id
        server.faults.append(breaking(moment, skip=broken))
        try:
            provider.delete(provider_id)
        except Unavailable:
            open_provider().delete(provider_id)
        met = not server.faults
        server.faults.clear()
        assert set(cluster.guests) == {TEMPLATE}
        assert not cluster.storages["local"].files, f"a seed was left when call {broken} broke"
        if not met:
            break
        broken += 1
    assert broken >= 8


def test_without_datastore_allocate_it_fails_on_every_path(
    provider: ProxmoxProvider, instance: str, cluster: Cluster
) -> None:
    """Whether the VM runs, is stopped, has lost its seed drive, or is gone by itself: its seed must not stay behind."""
    cluster.tokens[TOKEN]["/storage/local"] = ALL_PRIVILEGES - {"Datastore.Allocate"}
    guest = guest_of(cluster, instance)
    for change in ({}, {"status": "stopped"}, {"config": guest.config | {"ide2": "none,media=cdrom"}}):
        for name, value in change.items():
            setattr(guest, name, value)
        with pytest.raises(PermissionDenied, match=r"Datastore\.Allocate"):
            provider.delete(instance)
        assert guest.vmid in cluster.guests
    del cluster.guests[guest.vmid]
    with pytest.raises(PermissionDenied, match=r"Datastore\.Allocate"):
        provider.delete(instance)


def test_a_hibernated_vm_is_destroyed(provider: ProxmoxProvider, instance: str, cluster: Cluster) -> None:
    guest = guest_of(cluster, instance)
    guest.status, guest.config["lock"] = "stopped", "suspended"
    provider.delete(instance)
    assert set(cluster.guests) == {TEMPLATE}


def test_one_that_is_locked_is_waited_for_and_then_left(
    provider: ProxmoxProvider, instance: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "LOCK_SECONDS", 0.2)
    guest_of(cluster, instance).config["lock"] = "backup"
    with pytest.raises(Unavailable, match=r"VM is locked \(backup\)"):
        provider.delete(instance)
    assert guest_of(cluster, instance)


def test_one_under_protection_is_left_to_who_protected_it(
    provider: ProxmoxProvider, instance: str, cluster: Cluster
) -> None:
    guest_of(cluster, instance).config["protection"] = "1"
    with pytest.raises(PermissionDenied, match="protection mode"):
        provider.delete(instance)


def test_a_vmid_is_looked_at_again_before_it_is_destroyed(
    provider: ProxmoxProvider, instance: str, cluster: Cluster
) -> None:
    """Someone destroyed ours and cloned another onto its VMID: same name, same tags, another uid."""
    theirs = guest_of(cluster, instance)
    theirs.config["description"] = theirs.config["description"].replace(instance[-16:], "0" * 16)
    provider.delete(instance)
    with pytest.raises(InstanceNotFound):
        provider.get(instance)
    assert guest_of(cluster, instance) is theirs
    assert theirs.status == "running"


@pytest.mark.parametrize("step", ["POST .*/status/stop", "DELETE .*/qemu/[0-9]+"])
def test_a_vmid_that_becomes_anothers_in_the_middle_is_left_alone(
    step: str, provider: ProxmoxProvider, instance: str, cluster: Cluster, server: PveServer
) -> None:
    """It goes while the lock for a step is waited for, and who clones next is given its VMID."""
    guest = guest_of(cluster, instance)

    def pass_on() -> None:
        guest.config["description"] = guest.config["description"].replace(instance[-16:], "0" * 16)
        guest.status = "running"
        raise PveError(500, "can't lock file '/var/lock/qemu-server/lock-20000.conf' - got timeout")

    server.faults.append(Fault(step, before=pass_on))
    provider.delete(instance)
    assert not server.faults
    assert guest_of(cluster, instance) is guest
    assert guest.status == "running"
    assert not cluster.storages["local"].files, "the seed was ours"


def test_one_whose_record_was_overwritten_is_neither_ours_nor_lost(
    provider: ProxmoxProvider, instance: str, cluster: Cluster
) -> None:
    guest_of(cluster, instance).config["description"] = "my notes\n"
    assert provider.list().is_partial
    provider.delete(instance)
    assert guest_of(cluster, instance).status == "running"


def test_a_storage_that_is_not_there_fails_it(open_provider: Open, instance: str, cluster: Cluster) -> None:
    """It may be back tomorrow, with the seed on it."""
    del cluster.storages["local"]
    with pytest.raises(Misconfigured, match="isoStorage"):
        open_provider().delete(instance)
    assert guest_of(cluster, instance)


def test_the_seed_is_removed_from_where_it_was_put(open_provider: Open, instance: str, cluster: Cluster) -> None:
    cluster.storages["other"] = type(cluster.storages["local"])("iso")
    open_provider(isoStorage="other").delete(instance)
    assert not cluster.storages["local"].files

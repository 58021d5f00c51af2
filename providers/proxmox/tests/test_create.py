"""Create: VMIDs, races, locks, clones that fail, answers that get lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from providers.errors import (
    InstanceNotFound,
    InvalidRequest,
    Misconfigured,
    ProviderError,
    QuotaExceeded,
    Unavailable,
)
from providers.instances import InstanceRequest, InstanceState, Placement
from providers.proxmox import tasks
from providers.proxmox.driver import ProxmoxProvider
from providers.proxmox.mapping import vmids_for
from providers.proxmox.tests.conftest import Open, new_request
from providers.proxmox.tests.standin.cluster import TEMPLATE, Cluster, PveError
from providers.proxmox.tests.standin.server import Fault, PveServer, Reset, breaking, raising
from providers.tests.contract import settle


def test_what_a_vm_is_made_of(provider: ProxmoxProvider, cluster: Cluster) -> None:
    request = new_request(user_data=b"#cloud-config\n")
    instance = settle(provider, provider.create(request).provider_id)
    (guest,) = [guest for vmid, guest in cluster.guests.items() if vmid != TEMPLATE]
    assert guest.config["name"] == request.name
    assert guest.config["tags"] == "fleet-fleet-under-test", "the template's tags are no longer there"
    assert (guest.config["cores"], guest.config["memory"]) == ("1", "1024")
    seed = guest.config["ide2"].partition(",")[0].removeprefix("local:")
    assert b"#cloud-config\n" in cluster.storages["local"].files[seed]
    assert instance.provider_id.startswith(f"pve://pve1/{guest.vmid}/")


def test_one_of_its_name_that_goes_while_it_is_looked_at_holds_nothing(
    provider: ProxmoxProvider, cluster: Cluster, server: PveServer
) -> None:
    request = new_request()
    before = provider.create(request)
    vmid = int(before.provider_id.split("/")[3])

    def vanish() -> None:
        del cluster.guests[vmid]

    server.faults.append(Fault("GET /cluster/resources", after=vanish))
    assert provider.create(request).provider_id != before.provider_id


def test_identity_is_in_the_clone_call_itself(
    provider: ProxmoxProvider, cluster: Cluster, server: PveServer, open_provider: Open
) -> None:
    """A worker that dies right after the clone leaves a VM that any other knows as ours, although it has no tag yet."""
    request = new_request()
    server.faults.append(Fault("PUT .*/config", before=raising(Reset())))
    with pytest.raises(Unavailable):
        provider.create(request)
    (left,) = open_provider().list()
    assert left.identity == request.identity
    assert left.state is InstanceState.STOPPED
    assert open_provider().create(request).provider_id == left.provider_id


@pytest.mark.parametrize("lost", range(20))
def test_a_create_that_breaks_anywhere_is_finished_by_the_next(
    lost: int, provider: ProxmoxProvider, cluster: Cluster, server: PveServer
) -> None:
    """Both before and after what the call does; PVE carries on with a task whose answer got lost."""
    for moment in ("before", "after"):
        request = new_request()
        server.faults.append(breaking(moment, skip=lost))
        try:
            provider.create(request)
        except Unavailable:
            provider.create(request)
        server.faults.clear()
        assert [found.identity for found in provider.list()].count(request.identity) == 1
    assert len(cluster.guests) == 3


def test_two_entries_race_for_one_vmid(cluster: Cluster, open_provider: Open) -> None:
    cluster.task_seconds = 0.05
    limits = {"vmidRange": [20000, 20001]}
    with ThreadPoolExecutor(2) as pool:
        created = list(
            pool.map(lambda entry: open_provider(entry=entry, **limits).create(new_request()), ["east", "west"])
        )
    assert {instance.provider_id.split("/")[3] for instance in created} == {"20000", "20001"}
    for entry, instance in zip(["east", "west"], created, strict=True):
        assert [found.provider_id for found in open_provider(entry=entry).list()] == [instance.provider_id]
    with pytest.raises(QuotaExceeded, match="no VMID is free between 20000 and 20001"):
        open_provider(entry="east", **limits).create(new_request())


def test_a_vmid_that_others_hold_is_skipped_at_once(open_provider: Open, cluster: Cluster, server: PveServer) -> None:
    request = new_request()
    first, second, third = list(vmids_for(request.name, (20000, 20002)))
    cluster.add_guest(first, name="mail")
    cluster.add_guest(second, name="hidden")
    cluster.tokens[next(iter(cluster.tokens))][f"/vms/{second}"] = frozenset({"VM.Allocate"})
    created = open_provider(vmidRange=[20000, 20002]).create(request)
    assert created.provider_id.split("/")[3] == str(third)
    assert len([call for call in server.calls if call.endswith("/clone")]) == 1
    assert cluster.guests[first].config == {"name": "mail"}


def test_a_failed_clone_is_cleaned_up(provider: ProxmoxProvider, cluster: Cluster) -> None:
    cluster.failed_clones_stay = True
    cluster.task_faults["qmclone"] = ["clone failed: no space left on device"]
    with pytest.raises(QuotaExceeded, match="no space left"):
        provider.create(new_request())
    assert set(cluster.guests) == {TEMPLATE}


def test_parallel_clones_of_one_template_wait_for_its_storage(open_provider: Open, cluster: Cluster) -> None:
    cluster.task_seconds = 0.2
    with ThreadPoolExecutor(4) as pool:
        created = list(pool.map(lambda _: open_provider().create(new_request()), range(4)))
    assert len({instance.provider_id for instance in created}) == 4
    refused = [task.exitstatus for task in cluster.tasks.values() if "can't lock file" in task.exitstatus]
    assert refused, "no clone met the lock, so nothing was shown"


def test_a_lock_is_waited_for_no_longer_than_its_limit(
    provider: ProxmoxProvider, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.run, "__kwdefaults__", {"lock_seconds": 0.3})
    with cluster.storages["local-lvm"].lock, pytest.raises(Unavailable, match="can't lock file") as caught:
        provider.create(new_request())
    assert caught.value.retry_after
    assert set(cluster.guests) == {TEMPLATE}


def test_a_failed_start_is_told_in_the_words_of_the_task(provider: ProxmoxProvider, cluster: Cluster) -> None:
    cluster.task_faults["qmstart"] = ["start failed: bridge 'vmbr0' does not exist"]
    request = new_request()
    with pytest.raises(ProviderError, match="bridge 'vmbr0' does not exist"):
        provider.create(request)
    assert provider.create(request).state is InstanceState.RUNNING


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (Placement(machine_type="small"), "placement.image is missing: one of debian-13"),
        (Placement(image="debian-13"), "placement.machineType is missing: one of small"),
        (Placement(image="debian-13", machine_type="huge"), "placement.machineType 'huge' is not configured"),
        (Placement(image="debian-13", machine_type="small", zone="pve9"), "placement.zone 'pve9' is not configured"),
    ],
)
def test_a_placement_is_refused_by_the_name_of_its_field(
    placement: Placement, message: str, provider: ProxmoxProvider
) -> None:
    request = new_request()
    with pytest.raises(InvalidRequest, match=message):
        provider.create(InstanceRequest(request.identity, request.port, placement))


def test_a_missing_iso_storage_blocks(open_provider: Open, cluster: Cluster) -> None:
    request = new_request()
    with pytest.raises(Misconfigured, match="isoStorage"):
        open_provider(isoStorage="nowhere").create(request)
    (left,) = open_provider().list()
    assert open_provider().create(request).provider_id == left.provider_id, "it goes on once the entry is right"


@pytest.mark.parametrize(
    ("template", "detail"),
    [
        ({}, "VM 9000 on pve1 does not exist"),
        ({"template": "0"}, "is no template"),
        ({"ide0": "local-lvm:vm-9000-cloudinit,media=cdrom"}, "has a cloud-init drive"),
        ({"ide2": "local-lvm:vm-9000-disk-1,size=1G"}, "has a disk as ide2"),
    ],
)
def test_an_unfit_template_blocks(
    template: dict[str, str], detail: str, provider: ProxmoxProvider, cluster: Cluster
) -> None:
    del cluster.guests[TEMPLATE]
    if template:
        cluster.add_template(TEMPLATE, "pve1", **template)
    with pytest.raises(Misconfigured) as caught:
        provider.create(new_request())
    assert detail in caught.value.detail


def test_a_clone_that_goes_on_after_its_worker_died_is_adopted(
    provider: ProxmoxProvider, open_provider: Open, cluster: Cluster, server: PveServer
) -> None:
    """It has neither name nor description yet, so the next worker waits to see whose it is."""
    cluster.task_seconds = 0.5
    request = new_request()
    server.faults.append(Fault("POST .*/clone", after=raising(Reset())))
    with pytest.raises(Unavailable):
        provider.create(request)
    instance = open_provider().create(request)
    assert [found.provider_id for found in provider.list()] == [instance.provider_id]
    assert len(cluster.guests) == 2


def test_a_vmid_that_the_backend_gave_to_another_is_not_found(provider: ProxmoxProvider, cluster: Cluster) -> None:
    ours = provider.create(new_request())
    vmid = int(ours.provider_id.split("/")[3])
    cluster.guests[vmid] = cluster.add_guest(vmid, name="mail", description="not ours\n")
    with pytest.raises(InstanceNotFound):
        provider.get(ours.provider_id)
    provider.delete(ours.provider_id)
    assert cluster.guests[vmid].config["name"] == "mail"
    assert not [path for path in cluster.storages["local"].files if path.startswith("iso/fleet-under-test")]


def test_a_busy_backend_is_unavailable(provider: ProxmoxProvider, server: PveServer) -> None:
    server.faults.append(Fault("GET /cluster/resources", before=raising(PveError(503, "Service Unavailable"))))
    with pytest.raises(Unavailable):
        provider.create(new_request())

"""What the driver does at Compute Engine: which calls, what is in them, and what it makes of the answers."""

from __future__ import annotations

import base64
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from providers.errors import InstanceNotFound, InvalidRequest, QuotaExceeded, Unavailable
from providers.gcp.driver import REFUSAL_HOLDS, GcpProvider
from providers.gcp.tests.conftest import Time
from providers.gcp.tests.requests import PLACEMENT, gcp_request
from providers.gcp.tests.standin.answers import not_found
from providers.gcp.tests.standin.backend import GceBackend
from providers.gcp.tests.standin.cloud import Cloud
from providers.gcp.tests.standin.server import ComputeServer, Fault
from providers.instances import InstanceState, Placement
from providers.tests.backend import Life
from providers.tests.contract import FLEET, make_request

STOCKOUT = "ZONE_RESOURCE_POOL_EXHAUSTED: The zone 'europe-west1-b' has not enough resources for e2-small."
NO_QUOTA = "QUOTA_EXCEEDED: Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1."


def metadata_of(cloud: Cloud) -> dict[str, str]:
    return {item["key"]: item["value"] for item in cloud.machines[0].body["metadata"]["items"]}


def test_an_instance_takes_five_calls_from_create_to_delete(provider: GcpProvider, server: ComputeServer) -> None:
    instance = provider.create(gcp_request())
    assert server.calls == {"instances.insert": 1, "instances.get": 1}
    provider.list()
    assert server.calls["instances.aggregatedList"] == 1
    provider.delete(instance.provider_id)
    assert server.calls == {
        "instances.insert": 1,
        "instances.get": 2,
        "instances.delete": 1,
        "instances.aggregatedList": 1,
    }


@pytest.mark.parametrize(
    ("placement", "named"),
    [
        (Placement(), "placement.zone, placement.machineType, placement.image"),
        (replace(PLACEMENT, zone=""), "placement.zone"),
        (replace(PLACEMENT, machine_type=""), "placement.machineType"),
        (replace(PLACEMENT, image=""), "placement.image"),
    ],
)
def test_what_is_missing_is_named_all_at_once(
    provider: GcpProvider, server: ComputeServer, placement: Placement, named: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"needs {named}$"):
        provider.create(replace(make_request(), placement=placement))
    assert not server.calls


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"zone": "europe/west1"}, "placement.zone: 'europe/west1' is no name"),
        ({"zone": "mars-north1-a"}, "Unknown zone"),
        ({"machine_type": "e2-huge"}, "machineType.*does not exist"),
        ({"image": "no-such-image"}, "images/no-such-image' was not found"),
    ],
)
def test_what_compute_engine_does_not_know_is_the_specs_fault(
    provider: GcpProvider, change: dict[str, str], told: str
) -> None:
    with pytest.raises(InvalidRequest, match=told):
        provider.create(replace(gcp_request(), placement=replace(PLACEMENT, **change)))


def test_the_insert_carries_identity_tag_disk_and_an_external_address(backend: GceBackend, cloud: Cloud) -> None:
    request = gcp_request()
    long_name = replace(request, identity=replace(request.identity, name="a.name." + "x" * 200))
    backend.driver(fleet_id=FLEET, network="crawl", networkTag="proxies", diskSizeGb=20).create(long_name)
    body: dict[str, Any] = cloud.machines[0].body
    assert body["labels"] == {
        "proxyfleet-fleet": FLEET,
        "proxyfleet-entry": "gcp-eu",
        "proxyfleet-uid": request.identity.proxy_uid.hex,
        "proxyfleet-hash": request.identity.instance_hash,
    }
    assert metadata_of(cloud)["proxyfleet-name"] == long_name.identity.name
    assert body["tags"] == {"items": ["proxies"]}
    assert body["disks"][0]["initializeParams"]["diskSizeGb"] == "20"
    assert body["networkInterfaces"][0]["network"] == "global/networks/crawl"
    assert body["networkInterfaces"][0]["accessConfigs"][0]["type"] == "ONE_TO_ONE_NAT"
    assert "serviceAccounts" not in body


def test_user_data_arrives_byte_for_byte(provider: GcpProvider, cloud: Cloud) -> None:
    text = "#cloud-config\r\n# grüße\n\truncmd: []\n".encode()
    provider.create(gcp_request(user_data=text))
    assert metadata_of(cloud)["user-data"].encode() == text
    assert "user-data-encoding" not in metadata_of(cloud)


def test_user_data_that_is_no_text_goes_as_base64_which_cloud_init_undoes(provider: GcpProvider, cloud: Cloud) -> None:
    gzipped = b"\x1f\x8b\x08\x00\xff\xfe"
    provider.create(gcp_request(user_data=gzipped))
    assert metadata_of(cloud)["user-data-encoding"] == "base64"
    assert base64.b64decode(metadata_of(cloud)["user-data"]) == gzipped


def test_user_data_that_is_too_long_is_refused_before_it_is_sent(provider: GcpProvider, server: ComputeServer) -> None:
    provider.create(gcp_request(user_data=b"#" * 262_144))
    with pytest.raises(InvalidRequest, match=r"cloudInit: .* 262144 bytes of user-data, these are 262145"):
        provider.create(gcp_request(user_data=b"#" * 262_145))
    assert server.calls["instances.insert"] == 1


@pytest.mark.parametrize("fault", [Fault(reset=True), Fault(garble=lambda body: body[:20])])
def test_a_lost_insert_response_leads_to_one_instance(
    provider: GcpProvider, server: ComputeServer, cloud: Cloud, fault: Fault
) -> None:
    server.faults["instances.insert"].append(fault)
    request = gcp_request()
    with pytest.raises(Unavailable):
        provider.create(request)
    again = provider.create(request)
    assert [machine.number for machine in cloud.machines] == [int(again.provider_id.rpartition("/")[2])]
    assert len(cloud.operations) == 1, "the repeated insert was answered with the first one's operation"


@pytest.mark.parametrize("told", [STOCKOUT, NO_QUOTA])
@pytest.mark.parametrize("appears_for", [0, 2])
def test_a_late_refusal_becomes_quota_exceeded_and_is_waited_out(
    provider: GcpProvider, backend: GceBackend, server: ComputeServer, time: Time, told: str, appears_for: int
) -> None:
    """A refused instance shows for a moment, or never, and then it is as if nobody had asked for it."""
    backend.lives.append(Life(provisioning_gets=appears_for, fails=told))
    request = gcp_request()
    if appears_for:
        accepted = provider.create(request)
        assert accepted.state is InstanceState.PROVISIONING
        assert provider.get(accepted.provider_id).state is InstanceState.PROVISIONING
        with pytest.raises(InstanceNotFound):
            provider.get(accepted.provider_id)

    code, _, message = told.partition(": ")
    for _ in range(2):
        with pytest.raises(QuotaExceeded) as refusal:
            provider.create(request)
        assert str(refusal.value) == f"{message} ({code})"
    assert server.calls["zoneOperations.get"] == 2
    assert not backend.machines()

    time.passed = REFUSAL_HOLDS
    made = provider.create(request)
    assert provider.create(request).provider_id == made.provider_id
    assert len(backend.machines()) == 1


def test_a_refusal_whose_record_has_expired_holds_nothing_up(
    provider: GcpProvider, backend: GceBackend, cloud: Cloud
) -> None:
    backend.lives.append(Life(fails=STOCKOUT))
    request = gcp_request()
    with pytest.raises(QuotaExceeded):
        provider.create(request)
    cloud.forget_operations()
    assert provider.create(request).state is InstanceState.RUNNING


def test_an_accident_inside_compute_engine_is_tried_again_at_once(provider: GcpProvider, backend: GceBackend) -> None:
    backend.lives.append(Life(fails="something broke"))
    assert provider.create(gcp_request()).state is InstanceState.RUNNING


def test_a_late_refusal_of_the_spec_is_the_specs_fault(provider: GcpProvider, backend: GceBackend) -> None:
    backend.lives.append(Life(fails="INVALID_FIELD_VALUE: The image does not fit the machine type."))
    with pytest.raises(InvalidRequest, match="does not fit"):
        provider.create(gcp_request())


def test_a_quota_that_is_known_at_once_is_told_at_once(provider: GcpProvider, cloud: Cloud) -> None:
    cloud.instance_quota = 1
    provider.create(gcp_request())
    with pytest.raises(QuotaExceeded, match="Quota 'INSTANCES' exceeded"):
        provider.create(gcp_request())


def test_an_instance_that_does_not_show_yet_is_provisioning(provider: GcpProvider, server: ComputeServer) -> None:
    def refuse() -> None:
        raise not_found("projects/test-project/zones/europe-west1-b/instances/not-yet")

    server.faults["instances.get"].append(Fault(before=refuse))
    request = gcp_request()
    expected = provider.create(request)
    assert expected.state is InstanceState.PROVISIONING
    assert provider.get(expected.provider_id).identity == request.identity


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("PENDING", InstanceState.PROVISIONING),
        ("REPAIRING", InstanceState.PROVISIONING),
        ("STOPPING", InstanceState.DELETING),
        ("DEPROVISIONING", InstanceState.DELETING),
        ("TERMINATED", InstanceState.STOPPED),
        ("SUSPENDED", InstanceState.STOPPED),
        ("SOMETHING_NEW", InstanceState.PROVISIONING),
    ],
)
def test_states(provider: GcpProvider, cloud: Cloud, status: str, state: InstanceState) -> None:
    instance = provider.create(gcp_request())
    cloud.machines[0].status = status
    seen = provider.get(instance.provider_id)
    assert (seen.state, seen.address) == (state, None)
    assert status in seen.message


def test_a_preempted_spot_instance_is_stopped_and_says_why(provider: GcpProvider, cloud: Cloud) -> None:
    instance = provider.create(gcp_request())
    cloud.stop(cloud.machines[0].number, spot=True)
    seen = provider.get(instance.provider_id)
    assert seen.state is InstanceState.STOPPED
    assert seen.message == "Compute Engine says TERMINATED: preempted, or stopped by someone"


def test_the_address_may_come_later_than_the_state(provider: GcpProvider, backend: GceBackend) -> None:
    backend.lives.append(Life(addressless_gets=2))
    instance = provider.create(gcp_request())
    assert (instance.state, instance.address) == (InstanceState.RUNNING, None)
    assert provider.get(instance.provider_id).address is None
    assert provider.get(instance.provider_id).address


def test_a_name_that_was_taken_over_is_not_ours(provider: GcpProvider, backend: GceBackend, cloud: Cloud) -> None:
    """The number in the providerID tells two instances of one name apart."""
    request = gcp_request()
    lost = provider.create(request)
    backend.vanish(lost.provider_id)
    provider.create(request)
    del cloud.machines[0].body["labels"]["proxyfleet-fleet"]
    provider.delete(lost.provider_id)
    assert len(cloud.machines) == 1


@pytest.mark.parametrize("told_in", ["unreachables", "warning"])
@pytest.mark.parametrize("page_size", [1, 500])
def test_an_unreachable_zone_is_told_and_nothing_there_is_gone(
    provider: GcpProvider, backend: GceBackend, cloud: Cloud, told_in: str, page_size: int
) -> None:
    here = [provider.create(gcp_request(zone="us-east1-d")) for _ in range(3)]
    there = provider.create(gcp_request())
    backend.unreachable_zones.add(backend.zone)
    cloud.tells_unreachable = frozenset({told_in})
    cloud.page_limit = page_size

    listed = provider.list()
    assert {found.provider_id for found in listed} == {instance.provider_id for instance in here}
    assert listed.unreachable == (backend.zone,)
    for call in (provider.get, provider.delete):
        with pytest.raises(Unavailable):
            call(there.provider_id)
    verdicts = [(target.name, target.reason) for target in provider.check()]
    assert verdicts == [("test-project", "Healthy"), (backend.zone, "Unreachable")]


def test_a_list_of_many_pages_is_read_to_its_end(provider: GcpProvider, cloud: Cloud, server: ComputeServer) -> None:
    made = {provider.create(gcp_request(zone=zone)).provider_id for zone in ("us-east1-d", "europe-west1-b") * 2}
    cloud.page_limit = 1
    assert {found.provider_id for found in provider.list()} == made
    assert server.calls["instances.aggregatedList"] == 4


def test_two_entries_of_one_project_see_their_own(backend: GceBackend, provider: GcpProvider) -> None:
    ours = provider.create(gcp_request())
    theirs = backend.driver("gcp-us", fleet_id=FLEET).create(gcp_request())
    assert [found.provider_id for found in provider.list()] == [ours.provider_id]
    assert [found.provider_id for found in backend.driver("gcp-us", fleet_id=FLEET).list()] == [theirs.provider_id]


def test_an_instance_outlives_the_entrys_move_to_another_project(backend: GceBackend, provider: GcpProvider) -> None:
    instance = provider.create(gcp_request())
    assert backend.driver(fleet_id=FLEET, project="another-project").get(instance.provider_id) == provider.get(
        instance.provider_id
    )


def test_the_request_id_is_forgotten_after_an_hour_and_the_name_still_allows_one(
    provider: GcpProvider, backend: GceBackend, time: Time
) -> None:
    request = gcp_request()
    first = provider.create(request)
    time.passed = timedelta(hours=2)
    assert provider.create(request).provider_id == first.provider_id
    assert len(backend.machines()) == 1


def test_the_sdk_is_imported_by_those_alone_who_use_it() -> None:
    """It takes a second or two."""
    program = "import sys, providers.registry, providers.gcp.mapping; sys.exit('google.cloud' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)

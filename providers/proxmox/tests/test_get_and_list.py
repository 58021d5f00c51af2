"""Get and list: addresses, states, nodes that are offline, rights that were lost, tokens and certificates."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
import trustme

from providers.errors import (
    AuthenticationFailed,
    InstanceNotFound,
    Misconfigured,
    PermissionDenied,
    ProviderError,
    Unavailable,
)
from providers.instances import InstanceState
from providers.proxmox.driver import ProxmoxProvider
from providers.proxmox.tests.conftest import Open, new_request
from providers.proxmox.tests.standin.cluster import ALL_PRIVILEGES, TOKEN, Cluster, Guest
from providers.proxmox.tests.standin.server import Fault, PveServer, Reset, raising


@pytest.fixture
def instance(provider: ProxmoxProvider) -> str:
    return provider.create(new_request()).provider_id


@pytest.fixture
def guest(instance: str, cluster: Cluster) -> Guest:
    return cluster.guests[int(instance.split("/")[3])]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["fe80::1", "2001:db8::7", "192.0.2.7"], "192.0.2.7"),
        (["169.254.3.4", "2001:db8::7"], "2001:db8::7"),
        (["fe80::1%eth0", "169.254.3.4", "127.0.0.1", "::1"], None),
        ([], None),
    ],
)
def test_the_address(
    addresses: list[str], expected: str | None, provider: ProxmoxProvider, instance: str, guest: Guest
) -> None:
    guest.addresses = addresses
    assert provider.get(instance).address == expected


def test_a_guest_that_boots_has_no_address_yet(provider: ProxmoxProvider, instance: str, guest: Guest) -> None:
    guest.agent_refusals = 2
    assert [provider.get(instance).address is None for _ in range(3)] == [True, True, False]


def test_an_agent_that_fell_silent_is_unavailable_not_missing(
    provider: ProxmoxProvider, instance: str, guest: Guest
) -> None:
    guest.uptime, guest.agent_refusals = 86_400, 1
    with pytest.raises(Unavailable, match="agent is not running"):
        provider.get(instance)
    assert provider.get(instance).address


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"status": "stopped"}, InstanceState.STOPPED),
        ({"qmpstatus": "paused"}, InstanceState.STOPPED),
        ({"qmpstatus": "io-error"}, InstanceState.FAILED),
    ],
)
def test_states(
    changes: dict[str, str], state: InstanceState, provider: ProxmoxProvider, instance: str, guest: Guest
) -> None:
    for name, value in changes.items():
        setattr(guest, name, value)
    assert provider.get(instance).state is state


class TestTwoNodes:
    @pytest.fixture
    def cluster(self) -> Cluster:
        return Cluster("pve1", "pve2")

    @pytest.fixture
    def instance(self, provider: ProxmoxProvider) -> str:
        return provider.create(new_request(zone="pve2")).provider_id

    def test_a_clone_goes_to_the_node_that_the_zone_names(self, instance: str, guest: Guest) -> None:
        assert instance.startswith("pve://pve2/")
        assert guest.node == "pve2"

    def test_a_node_that_is_offline_is_unavailable_never_gone(
        self, provider: ProxmoxProvider, instance: str, cluster: Cluster
    ) -> None:
        here = provider.create(new_request(zone="pve1"))
        cluster.offline.add("pve2")
        listing = provider.list()
        assert [found.provider_id for found in listing] == [here.provider_id]
        assert listing.unreachable == ("pve2",)
        for verb in (provider.get, provider.delete):
            with pytest.raises(Unavailable):
                verb(instance)
        cluster.offline.clear()
        assert provider.get(instance).state is InstanceState.RUNNING

    def test_one_that_moved_keeps_its_provider_id(
        self, provider: ProxmoxProvider, instance: str, guest: Guest, cluster: Cluster
    ) -> None:
        guest.node = "pve1"
        assert provider.get(instance).provider_id == instance
        assert [found.provider_id for found in provider.list()] == [instance]
        provider.delete(instance)
        assert guest.vmid not in cluster.guests

    def test_a_node_that_left_the_cluster_tells_nothing(
        self, provider: ProxmoxProvider, instance: str, cluster: Cluster
    ) -> None:
        cluster.nodes = ("pve1",)
        with pytest.raises(Unavailable, match="hostname lookup"):
            provider.get(instance)


def test_lost_rights_never_look_like_an_empty_cluster(
    provider: ProxmoxProvider, instance: str, cluster: Cluster
) -> None:
    cluster.tokens[TOKEN]["/vms"] = ALL_PRIVILEGES - {"VM.Audit"}
    with pytest.raises(PermissionDenied) as caught:
        provider.list()
    assert "VM.Audit" in caught.value.detail
    with pytest.raises(PermissionDenied):
        provider.get(instance)


def test_one_without_a_fresh_name_is_listed(provider: ProxmoxProvider, instance: str, guest: Guest) -> None:
    guest.known_name = False
    assert [found.provider_id for found in provider.list()] == [instance]


def test_the_token_is_rotated_in_the_middle_of_a_create(
    provider: ProxmoxProvider, cluster: Cluster, server: PveServer, tmp_path: Path
) -> None:
    def rotate() -> None:
        cluster.tokens = {"fleet@pve!second=another-secret": {"/": ALL_PRIVILEGES}}
        (tmp_path / "token").write_text("fleet@pve!second=another-secret")

    server.faults.append(Fault("POST .*/clone", after=rotate))
    assert provider.create(new_request()).state is InstanceState.RUNNING


@pytest.mark.parametrize("content", [None, "", "no token at all", "fleet@pve!driver=wrong-secret"])
def test_a_token_that_is_not_accepted(content: str | None, provider: ProxmoxProvider, tmp_path: Path) -> None:
    (tmp_path / "token").unlink() if content is None else (tmp_path / "token").write_text(content)
    with pytest.raises(AuthenticationFailed) as caught:
        provider.list()
    assert "secret" not in str(caught.value) + caught.value.detail.replace("SECRET", "")


def test_a_certificate_of_another_authority_is_refused(provider: ProxmoxProvider, tmp_path: Path) -> None:
    (good := tmp_path / "good.pem").write_bytes((tmp_path / "ca.pem").read_bytes())
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    with pytest.raises(Misconfigured, match="can't be verified"):
        provider.list()
    (tmp_path / "ca.pem").write_bytes(good.read_bytes())
    assert not provider.list().is_partial, "the file is read when it is used"


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_cannot_be_used(content: str | None, provider: ProxmoxProvider, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").unlink() if content is None else (tmp_path / "ca.pem").write_text(content)
    with pytest.raises(Misconfigured) as caught:
        provider.list()
    assert f"caFile {tmp_path / 'ca.pem'}" in caught.value.detail


def test_a_server_that_hangs_is_given_up(open_provider: Open, server: PveServer) -> None:
    server.faults.append(Fault("GET /nodes", before=lambda: time.sleep(1)))
    with pytest.raises(Unavailable, match="in time"):
        open_provider(requestTimeoutSeconds=0.2).list()


def test_a_dead_server_is_unavailable(open_provider: Open) -> None:
    with pytest.raises(Unavailable, match="can't be reached"):
        open_provider(url="https://127.0.0.1:1").list()


def test_redirects_and_the_environment_are_not_followed(
    provider: ProxmoxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere")
    assert provider.list().instances == ()


def test_no_secret_is_in_any_log_or_error(
    provider: ProxmoxProvider, server: PveServer, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a whole life in which every call breaks once, at the loudest level of every library."""
    caplog.set_level(logging.DEBUG)
    request = new_request(user_data=b"#cloud-config\npassword: hunter2-is-secret\n")
    told = []
    for call in range(30):
        server.faults.append(Fault(".*", skip=call, after=raising(Reset())))
        try:
            provider.delete(provider.create(request).provider_id)
        except ProviderError as error:
            told += [str(error), error.detail, repr(error), repr(error.__cause__), repr(error.__context__)]
        server.faults.clear()
    assert len(told) > 50
    assert "connectionpool" in caplog.text, "urllib3 logs its requests"
    for secret in ("hunter2", TOKEN.partition("=")[2], "PVEAPIToken"):
        assert secret not in caplog.text
        assert secret not in "".join(told)


def test_what_is_gone_at_its_node_is_not_found(provider: ProxmoxProvider, instance: str, cluster: Cluster) -> None:
    cluster.guests.clear()
    with pytest.raises(InstanceNotFound):
        provider.get(instance)

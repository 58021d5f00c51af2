"""Proxies in real guests: declared in the admin, configured by cloud-init, probed through Squid, gone without rest."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pycdlib
import pytest
import requests
import trustme
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from health.probes import tls_context
from providers.instances import InstanceState, Placement
from providers.tests.contract import make_request, settle
from proxyfleet.fleet.models import Proxy
from tests.kvm.entries import block, provider, tiny_request
from tests.kvm.fleet import Fleet, providers_of, target
from tests.kvm.guest import CLOUD_CONFIG, FORMATS, JINJA, Guest
from tests.kvm.host import Host, wait_until
from tests.kvm.sources import ImageServer

pytestmark = [pytest.mark.timeout(1500), pytest.mark.django_db(transaction=True)]

USER_DATA = "/var/lib/cloud/instance/user-data.txt"
ADD = reverse("admin:fleet_proxy_add")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A target that probes trust: the settings, which would name its authority, are read once for all tests."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setattr("health.engine._shared_tls", lambda: tls_context(tmp_path / "ca.pem"))
    with target(authority) as url:
        yield url


@pytest.fixture
def fleet(host: Host, images: ImageServer, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    fleet = Fleet(providers_of(home=("kvm2", block(host, images))))
    monkeypatch.setattr("proxyfleet.fleet.admin.editing.providers", lambda: fleet.providers)
    return fleet


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser(username="operator"))
    return client


def submit(client: Client, url: str, **changes: str) -> None:
    """What a browser would post: the form as it is shown, with some fields changed."""
    form = client.get(url).context["adminform"].form
    shown = {name: form[name].value() for name in form.fields if not form.fields[name].disabled}
    values = {name: "" if value is None else value for name, value in (shown | changes).items()}
    response = client.post(url, values)
    assert response.status_code == 302, response.context["errors"]


def test_a_proxy_from_the_admin_to_ready_replaced_and_gone_without_rest(
    fleet: Fleet, host: Host, operator: Client, page: str
) -> None:
    wanted = {"provider": "home", "machine_type": "small", "image": "full", "health_url": page}
    submit(operator, ADD, name="crawl-1", cloud_init=CLOUD_CONFIG.replace("\n", "\r\n"), **wanted)
    proxy = fleet.until(Proxy.objects.get(), lambda proxy: proxy.phase == "Ready")
    assert [step for step in fleet.history(proxy) if step in {"InstanceCreated", "Ready"}] == [
        "InstanceCreated",
        "Ready",
    ]
    first = proxy.provider_id
    assert Guest(host, first).read(USER_DATA) == CLOUD_CONFIG.encode()

    submit(operator, reverse("admin:fleet_proxy_edit", args=[proxy.pk]), cloud_init=JINJA)
    proxy = fleet.until(proxy, lambda proxy: proxy.phase == "Ready" and proxy.provider_id != first)
    assert Guest(host, proxy.provider_id).read(USER_DATA) == JINJA.encode()
    instance = fleet.providers.get("home").get(proxy.provider_id)
    assert Guest(host, proxy.provider_id).read("/run/instance-id").decode() == instance.identity.instance_name

    operator.post(reverse("admin:fleet_proxy_do", args=["delete"]), {"ids": proxy.pk, "confirmed": "yes"})
    fleet.until_gone(proxy)
    assert host.virsh("list", "--all", "--name").split() == []
    assert {"base-home-full.qcow2", "base-home-full.qcow2.complete"} <= host.volumes()
    assert host.volumes() == host.complete_bases()
    assert host.nvram() == set()


def holds(guest: Guest, user_data: bytes) -> bool:
    try:
        return guest.read(USER_DATA) == user_data
    except RuntimeError:  # the agent may be there before cloud-init
        return False


def answers(page: str, proxies: dict[str, str], authority: Path) -> bool:
    try:
        return requests.get(page, proxies=proxies, verify=str(authority), timeout=10).status_code == 204
    except requests.RequestException:
        return False


def test_a_guest_that_boots_by_uefi(host: Host, images: ImageServer, page: str, tmp_path: Path) -> None:
    """With an agent that falls silent: the address is still known, from its lease."""
    home = provider("kvm", block(host, images))
    request = make_request(user_data=FORMATS["mime"])
    made = home.create(replace(request, placement=Placement(machine_type="small", image="full-uefi")))
    assert len(host.nvram()) == 1
    guest = Guest(host, made.provider_id)
    wait_until(guest.agent_is_connected, "the guest's agent", seconds=600)
    running = settle(home, made.provider_id)
    wait_until(partial(holds, guest, FORMATS["mime"]), "cloud-init", seconds=120)
    through = {"https": f"http://{running.address}:3128"}
    wait_until(lambda: answers(page, through, tmp_path / "ca.pem"), "a CONNECT through Squid", seconds=120)

    guest.stop_agent()
    wait_until(lambda: not guest.agent_is_connected(), "the agent to end", seconds=60)
    assert home.get(made.provider_id).address == running.address

    home.delete(made.provider_id)
    assert host.nvram() == set()


def test_gzip_and_a_script_reach_guests_byte_for_byte(host: Host, images: ImageServer) -> None:
    home = provider("kvm", block(host, images))
    placement = Placement(machine_type="small", image="full")
    guests = {
        name: Guest(
            host,
            home.create(replace(make_request(user_data=FORMATS[name]), placement=placement)).provider_id,
        )
        for name in ("gzip", "script")
    }
    for name, guest in guests.items():
        wait_until(guest.agent_is_connected, f"the agent of the guest of {name}", seconds=600)
    for name, guest in guests.items():
        wait_until(partial(holds, guest, FORMATS[name]), f"cloud-init of {name}", seconds=120)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_seed_in_the_pool_holds_user_data_byte_for_byte(host: Host, images: ImageServer, name: str) -> None:
    home = provider("kvm2", block(host, images))
    request = tiny_request(user_data=FORMATS[name])
    home.create(request)
    seed = pycdlib.PyCdlib()
    seed.open(str(host.pools / "default" / f"{request.name}-seed.iso"))
    content = io.BytesIO()
    seed.get_file_from_iso_fp(content, rr_path="/user-data")
    seed.close()
    assert content.getvalue() == FORMATS[name]
    assert home.list().instances[0].state in {InstanceState.PROVISIONING, InstanceState.RUNNING}

"""Every refusal of a placement names its field and what there is to choose from; the address rules."""

from __future__ import annotations

from typing import Any

import pytest

from providers.blocks import LibvirtBlock
from providers.errors import InvalidRequest
from providers.libvirt.addresses import choose
from providers.libvirt.placement import host_of, image_of, machine_type_of


def block_with(*hosts: str) -> LibvirtBlock:
    return LibvirtBlock.model_validate(
        {
            "sshKeyFile": "/key",
            "insecureIgnoreHostKey": True,
            "hosts": [{"name": host} for host in hosts],
            "machineTypes": {"small": {}, "large": {"vcpus": 4}},
            "images": {"debian-13": {"url": "https://images.test/d.raw", "format": "raw", "firmware": "bios"}},
        }
    )


def test_the_only_host_needs_no_zone() -> None:
    assert host_of(block_with("one"), "").name == "one"
    assert host_of(block_with("one", "two"), "two").name == "two"


@pytest.mark.parametrize(
    ("look_up", "value", "says"),
    [
        (host_of, "", "placement.zone is missing: name the host; known are: one, two"),
        (host_of, "three", "placement.zone: the provider has no host 'three'; known are: one, two"),
        (machine_type_of, "", "placement.machineType is missing: name the machine type; known are: small, large"),
        (machine_type_of, "huge", "placement.machineType: the provider has no machine type 'huge'"),
        (image_of, "", "placement.image is missing: name the image \\(or URL\\); known are: debian-13"),
        (image_of, "debian-12", "placement.image: the provider has no image \\(or URL\\) 'debian-12'"),
        (image_of, "ftp://images.test/d", "placement.image: a URL must be http or https"),
        (image_of, "https://user:hunter2@images.test/d", "placement.image: a URL must be http or https"),
    ],
)
def test_a_refusal_names_the_field(look_up: Any, value: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as refused:
        look_up(block_with("one", "two"), value)
    assert "hunter2" not in str(refused.value) + refused.value.detail


def test_an_image_is_a_key_or_a_url() -> None:
    known = image_of(block_with("one"), "debian-13")
    assert (known.url, known.format, known.firmware) == ("https://images.test/d.raw", "raw", "bios")
    first = image_of(block_with("one"), "https://images.test/a.qcow2")
    second = image_of(block_with("one"), "https://images.test/b.qcow2")
    assert first.url == "https://images.test/a.qcow2"
    assert first.key != second.key


MAC = "52:54:0a:0b:0c:0d"


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        (["fe80::1", "169.254.3.4"], None),
        (["2001:db8::5", "192.0.2.7"], "192.0.2.7"),
        (["fe80::1", "2001:db8::5"], "2001:db8::5"),
        (["127.0.0.1", "0.0.0.0"], None),
        ([], None),
    ],
)
def test_the_address_is_one_that_clients_can_use(addresses: list[str], chosen: str | None) -> None:
    interfaces = {"eth0": {"hwaddr": MAC.upper(), "addrs": [{"addr": address} for address in addresses]}}
    assert choose(interfaces, {MAC}) == chosen


def test_a_bridge_that_the_guest_made_is_not_its_address() -> None:
    interfaces = {
        "lo": {"hwaddr": "00:00:00:00:00:00", "addrs": [{"addr": "192.0.2.1"}]},
        "docker0": {"hwaddr": "02:42:00:00:00:01", "addrs": [{"addr": "172.17.0.1"}]},
        "eth0": {"hwaddr": MAC, "addrs": None},
    }
    assert choose(interfaces, {MAC}) is None

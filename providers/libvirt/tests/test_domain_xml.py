"""What is written into a domain is read back from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID
from xml.etree.ElementTree import fromstring

import pytest

from providers.errors import Misconfigured
from providers.instances import Identity
from providers.libvirt import domain_xml
from providers.libvirt.domain_xml import Guest
from providers.libvirt.metadata import Record

RECORD = Record(
    entry="home",
    identity=Identity("fleet", UUID(int=7), "crawl", "a-<&>-'b'", "0123456789abcdef"),
    created_at=datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
)
GUEST = Guest(
    name="fleet-7",
    uuid=UUID(int=9),
    mac="52:54:0A:0b:0c:0d",
    vcpus=2,
    memory_mb=512,
    virt_type="kvm",
    firmware="uefi",
    disk="/pool/a & b.qcow2",
    seed="/pool/seed.iso",
    bridge=None,
    network=None,
    record=RECORD,
)


def test_a_domain_says_whose_it_is() -> None:
    described = domain_xml.read(domain_xml.write(GUEST))
    assert described.record == RECORD
    assert described.uuid == GUEST.uuid
    assert described.name == GUEST.name
    assert described.macs == {"52:54:0a:0b:0c:0d"}
    assert described.known_address is None
    assert not described.agent_connected


def test_disks_are_files_of_the_pool_and_the_seed_is_read_only() -> None:
    disks = fromstring(domain_xml.write(GUEST)).findall("devices/disk")
    assert [(disk.get("type"), disk.find("source").get("file")) for disk in disks] == [  # type: ignore[union-attr]  # a disk without a source fails the test as well
        ("file", GUEST.disk),
        ("file", GUEST.seed),
    ]
    assert [disk.find("readonly") is not None for disk in disks] == [False, True]


@pytest.mark.parametrize(
    ("bridge", "network", "kind", "source"),
    [(None, None, "bridge", "br0"), ("br7", None, "bridge", "br7"), (None, "egress", "network", "egress")],
)
def test_a_guest_is_on_one_network(bridge: str | None, network: str | None, kind: str, source: str) -> None:
    (interface,) = fromstring(domain_xml.write(replace(GUEST, bridge=bridge, network=network))).findall(
        "devices/interface"
    )
    assert interface.get("type") == kind
    assert [element.attrib for element in interface.findall("source")] == [{kind: source}]


def test_firmware_and_processor_are_as_configured() -> None:
    bios = fromstring(domain_xml.write(replace(GUEST, firmware="bios", virt_type="qemu")))
    uefi = fromstring(domain_xml.write(GUEST))
    assert (bios.get("type"), bios.find("os[@firmware]"), bios.find("cpu")) == ("qemu", None, None)
    assert uefi.get("type") == "kvm"
    assert uefi.find("os[@firmware='efi']") is not None
    assert uefi.find("cpu[@mode='host-passthrough']") is not None


def test_a_domain_of_someone_else_has_no_record() -> None:
    text = "<domain><name>x</name><uuid>00000000-0000-0000-0000-000000000001</uuid></domain>"
    assert domain_xml.read(text).record is None


def test_a_record_that_is_damaged_is_not_taken_for_nobodys() -> None:
    text = domain_xml.write(GUEST).replace(str(UUID(int=7)), "not-a-uuid")
    with pytest.raises(Misconfigured) as refused:
        domain_xml.read(text)
    assert "fleet-7" in refused.value.detail

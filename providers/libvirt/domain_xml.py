"""The description of a guest, written and read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

from providers.libvirt import metadata

AGENT_CHANNEL = "org.qemu.guest_agent.0"


@dataclass(frozen=True, slots=True)
class Guest:
    """What a domain is made from. Paths are those of the host."""

    name: str
    uuid: UUID
    mac: str
    vcpus: int
    memory_mb: int
    virt_type: Literal["kvm", "qemu"]
    firmware: Literal["uefi", "bios"]
    disk: str
    seed: str
    bridge: str | None
    network: str | None
    record: metadata.Record


@dataclass(frozen=True, slots=True)
class Described:
    """What is read from a domain's description."""

    name: str
    uuid: UUID
    macs: frozenset[str]
    agent_connected: bool
    record: metadata.Record | None
    known_address: str | None
    """The address that the guest was last seen at."""


def write(guest: Guest) -> str:
    domain = Element("domain", type=guest.virt_type)
    _text(domain, "name", guest.name)
    _text(domain, "uuid", str(guest.uuid))
    SubElement(domain, "metadata").append(metadata.to_element(guest.record))
    _text(domain, "memory", str(guest.memory_mb), unit="MiB")
    _text(domain, "vcpu", str(guest.vcpus))
    if guest.virt_type == "kvm":
        SubElement(domain, "cpu", mode="host-passthrough")
    _boot(domain, guest.firmware)
    features = SubElement(domain, "features")
    SubElement(features, "acpi")
    # A proxy that reboots by itself is still the same; one that crashes is replaced.
    _text(domain, "on_reboot", "restart")
    _text(domain, "on_crash", "destroy")

    devices = SubElement(domain, "devices")
    _disk(devices, "vda", guest.disk, kind="qcow2")
    # A disk, where a CD-ROM would be expected: the cloud kernels of Debian have no driver for a SATA one.
    seed = _disk(devices, "vdb", guest.seed, kind="raw")
    SubElement(seed, "readonly")
    _interface(devices, guest)
    channel = SubElement(devices, "channel", type="unix")
    SubElement(channel, "target", type="virtio", name=AGENT_CHANNEL)
    rng = SubElement(devices, "rng", model="virtio")
    _text(rng, "backend", "/dev/urandom", model="random")
    SubElement(devices, "console", type="pty")
    return tostring(domain, encoding="unicode")


def read(xml: str) -> Described:
    """Raises Misconfigured when the domain carries a record of ours that can't be understood."""
    domain = fromstring(xml)  # noqa: S314 - libvirt wrote it
    agent = domain.find(f"devices/channel/target[@name='{AGENT_CHANNEL}']")
    return Described(
        name=domain.findtext("name", ""),
        uuid=UUID(domain.findtext("uuid", "")),
        macs=frozenset(mac.get("address", "").lower() for mac in domain.findall("devices/interface/mac")),
        agent_connected=agent is not None and agent.get("state") == "connected",
        record=metadata.from_domain(domain),
        known_address=metadata.address_from_domain(domain),
    )


def _boot(domain: Element, firmware: str) -> None:
    # The boot loaders of self-made images are rarely signed.
    os = SubElement(domain, "os", {"firmware": "efi"} if firmware == "uefi" else {})
    _text(os, "type", "hvm", machine="q35")
    if firmware == "uefi":
        SubElement(SubElement(os, "firmware"), "feature", enabled="no", name="secure-boot")
    SubElement(os, "boot", dev="hd")


def _disk(devices: Element, target: str, path: str, *, kind: str) -> Element:
    disk = SubElement(devices, "disk", type="file", device="disk")
    SubElement(disk, "driver", name="qemu", type=kind, discard="unmap")
    SubElement(disk, "source", file=path)
    SubElement(disk, "target", dev=target, bus="virtio")
    return disk


def _interface(devices: Element, guest: Guest) -> None:
    kind = "network" if guest.network else "bridge"
    interface = SubElement(devices, "interface", type=kind)
    SubElement(interface, "source", {kind: guest.network or guest.bridge or "br0"})
    SubElement(interface, "mac", address=guest.mac)
    SubElement(interface, "model", type="virtio")


def _text(parent: Element, tag: str, text: str, **attributes: str) -> None:
    SubElement(parent, tag, attributes).text = text

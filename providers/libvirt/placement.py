"""Which host, size and image a request asks for. Pure; every refusal names the field of the spec."""

from __future__ import annotations

import hashlib
from urllib.parse import urlsplit

from providers.blocks import LibvirtBlock, LibvirtHost, LibvirtMachineType
from providers.errors import InvalidRequest
from providers.libvirt.sources import Image


def host_of(block: LibvirtBlock, zone: str) -> LibvirtHost:
    if not zone and len(block.hosts) == 1:
        return block.hosts[0]
    for host in block.hosts:
        if host.name == zone:
            return host
    raise _refusal("placement.zone", zone, "host", [host.name for host in block.hosts])


def machine_type_of(block: LibvirtBlock, name: str) -> LibvirtMachineType:
    found = block.machine_types.get(name)
    if found is None:
        raise _refusal("placement.machineType", name, "machine type", list(block.machine_types))
    return found


def image_of(block: LibvirtBlock, name: str) -> Image:
    """``name`` is a key of ``images`` or a URL; a URL is taken for a qcow2 that boots by UEFI."""
    if found := block.images.get(name):
        return Image(key=name, url=found.url, sha256=found.sha256, format=found.format, firmware=found.firmware)
    if "://" not in name:
        raise _refusal("placement.image", name, "image (or URL)", list(block.images))
    parts = urlsplit(name)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.password:
        raise InvalidRequest("placement.image: a URL must be http or https, with a host and without credentials")
    key = f"url-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return Image(key=key, url=name, sha256=None, format="qcow2", firmware="uefi")


def _refusal(field: str, value: str, kind: str, known: list[str]) -> InvalidRequest:
    choice = f"; known are: {', '.join(known)}" if known else ""
    if not value:
        return InvalidRequest(f"{field} is missing: name the {kind}{choice}")
    return InvalidRequest(f"{field}: the provider has no {kind} {value!r}{choice}")

"""Which of a guest's addresses clients connect to. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import Any


def choose(interfaces: Mapping[str, Any], macs: Collection[str]) -> str | None:
    """The address of the interface that we gave the guest: IPv4 before IPv6, never one that is good on its link alone.

    ``interfaces`` is what ``virDomain.interfaceAddresses`` returns. Bridges and tunnels that the guest made itself have
    addresses too, and other MACs.
    """
    usable = []
    for interface in interfaces.values():
        if (interface.get("hwaddr") or "").lower() not in macs:
            continue
        for entry in interface.get("addrs") or ():
            address = ip_address(entry["addr"])
            if not (address.is_link_local or address.is_loopback or address.is_multicast or address.is_unspecified):
                usable.append(address)
    return str(min(usable, key=lambda address: address.version)) if usable else None

"""Who asks? The address of a client, past proxies of our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network

V6_SITE = 64
"""Bits of an IPv6 address that are one customer's: the rest of it is theirs to change at will."""


def client_of(environ: Mapping[str, object], trusted: Sequence[Network]) -> str:
    """The address that a request came from; empty when it can't be told.

    ``X-Forwarded-For`` is anyone's to send, so it is read only as far as it was written by ``trusted`` proxies: from
    its end, up to the first address that is none of theirs.
    """
    address = _parsed(str(environ.get("REMOTE_ADDR", "")))
    hops = [hop.strip() for hop in str(environ.get("HTTP_X_FORWARDED_FOR", "")).split(",") if hop.strip()]
    while address is not None and hops and any(address in network for network in trusted):
        earlier = _parsed(hops.pop())
        if earlier is None:
            break
        address = earlier
    return "" if address is None else str(address)


def site_of(address: str) -> str:
    """What one client can't easily leave: the address, of IPv6 its network."""
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((parsed, V6_SITE), strict=False))
    return address


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address

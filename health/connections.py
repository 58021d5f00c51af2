"""Connect to a proxy by name or address, but never to where no proxy can be."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor

from proxyfleet.fleet.spec import is_never_probed, is_public

# Names are resolved in threads of our own: the loop's default pool is small, and waiting for it at the loop's end would
# make one silent name server cost the whole batch more than the deadline of its probe.
_RESOLVERS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="probe-resolver")


class ForbiddenAddressError(Exception):
    """The host is, or resolves to, a link-local or cloud-metadata address, or a private one where those are refused."""


class UnresolvedHostError(Exception):
    """The host's name has no address."""


async def connect(host: str, port: int, *, deadline: float, public_names: bool = False) -> socket.socket:
    """A connected non-blocking socket; the caller closes it. With ``public_names`` a name must lead to the internet.

    Addresses are tried in the resolver's order, each with an equal share of the time left until ``deadline`` (of the
    loop's clock), so that a silent first address leaves time for the second. They are judged before the first packet,
    and connected to as judged: a name can't point elsewhere in between.

    Raises ForbiddenAddressError, UnresolvedHostError, or the OSError of the last address.
    """
    loop = asyncio.get_running_loop()
    literal = _literal(host)
    addresses = [literal] if literal else await _resolve(host)
    judged = [ipaddress.ip_address(address) for address in addresses]
    if any(map(is_never_probed, judged)) or (public_names and not literal and not all(map(is_public, judged))):
        raise ForbiddenAddressError
    for left in range(len(addresses), 0, -1):
        now = loop.time()
        try:
            async with asyncio.timeout_at(now + (deadline - now) / left):
                return await _connect_address(addresses[-left], port)
        except OSError:
            if left == 1:
                raise
    raise UnresolvedHostError


async def _connect_address(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def _literal(host: str) -> str:
    """The address that ``host`` is; empty when it is a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


async def _resolve(host: str) -> list[str]:
    try:
        found = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, _addresses_of, host)
    except (socket.gaierror, ValueError) as error:  # ValueError: not even a name
        raise UnresolvedHostError from error
    return found


def _addresses_of(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))

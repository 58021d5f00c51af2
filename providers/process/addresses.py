"""Where a new proxy server shall listen: the declared port, on an address that nobody has yet."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection, Iterator
from ipaddress import ip_address

from providers.errors import InvalidRequest, Misconfigured

LOOPBACK = "127.0.0.1"
ATTEMPTS = 16

Endpoint = tuple[str, int]


def choose_endpoint(host: str, port: int, *, taken: Collection[Endpoint]) -> Endpoint:
    """``port`` on ``host`` (for 127.0.0.1: on some address of 127.0.0.0/8), else any free port of ``host``.

    ``taken`` are those that others have been promised but may not listen on yet. Raises InvalidRequest when the port
    needs a privilege, Misconfigured when ``host`` is no address of this machine.
    """
    for endpoint in _candidates(host, port):
        if endpoint not in taken and _bind(endpoint) is not None:
            return endpoint
    for _ in range(ATTEMPTS):
        free_port = _bind((host, 0))
        if free_port is None:
            break
        if (host, free_port) not in taken:
            return host, free_port
    raise Misconfigured(f"no port of {host} can be listened on: is it an address of this machine?")


def is_of_this_machine(host: str) -> bool:
    """Whether a server could listen on the address ``host`` here."""
    return _bind((host, 0)) is not None


def _candidates(host: str, port: int) -> Iterator[Endpoint]:
    if host != LOOPBACK:
        yield host, port
        return
    for _ in range(ATTEMPTS):
        # 127.0.x.y is left out: resolvers and host names live there.
        yield f"127.{random.randint(1, 254)}.{random.randint(0, 255)}.{random.randint(1, 254)}", port


def _bind(endpoint: Endpoint) -> int | None:
    """The port that could be bound just now, or None when it is in use or not of this machine."""
    family = socket.AF_INET6 if ip_address(endpoint[0]).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(endpoint)
        except PermissionError as error:
            raise InvalidRequest(
                f"port: {endpoint[1]} may not be listened on by this user; take one from 1024"
            ) from error
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EADDRNOTAVAIL}:
                return None
            raise
        return int(probe.getsockname()[1])

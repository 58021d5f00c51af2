"""Listening addresses: reading them, and asking whether they are free or answered."""

from __future__ import annotations

import http.client
import re
import socket
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Self

from proxyfleet.local.errors import LocalError
from proxyfleet.local.processes import wait_until

_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]*)):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``host:port``, ``[::1]:port``, or ``:port`` for every IPv4 interface. Raises ValueError.

        The name of a host is resolved here: servers that listen take addresses only.
        """
        found = _ADDRESS.fullmatch(text)
        if found is None or not 0 < int(found["port"]) < 1 << 16:
            raise ValueError(f"{text!r} is not an address like 127.0.0.1:8090, [::1]:8090 or :8090")
        host = found["v6"] or found["host"] or "0.0.0.0"  # noqa: S104 - asked for by the operator
        try:
            *_, (address, *_) = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError) as error:
            raise ValueError(f"{text!r} names no host of this machine: {error}") from None
        return cls(str(address), int(found["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def local_url(self) -> str:
        """For a client on this machine."""
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        return f"http://{Address(here, self.port)}"

    @property
    def is_free(self) -> bool:
        return self._obstacle() is None

    def require_free(self, *, patience: float = 0) -> None:
        """Raises LocalError when something else still listens there after ``patience`` seconds."""
        wait_until(lambda: self._obstacle() is None, patience)
        if obstacle := self._obstacle():
            raise LocalError(
                f"Can't listen on {self} ({obstacle}): free it, or choose another address, "
                f"like PROXYFLEET_DISCOVERY_ADDR=127.0.0.1:{self.port + 1}."
            )

    def _obstacle(self) -> str | None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
                probe.listen(1)
            except OSError as error:
                return error.strerror or str(error)
        return None

    def accepts(self) -> bool:
        """Does anything accept connections there?"""
        try:
            socket.create_connection((self.host, self.port), timeout=2).close()
        except OSError:
            return False
        return True

    def answers(self) -> bool:
        """Does anything answer HTTP there, whatever it says?"""
        return _answers(f"{self.local_url}/healthz", seconds=2)


def free_port() -> int:
    """A TCP port of the loopback that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def internet_reachable(url: str) -> bool:
    """Can ``url`` be fetched from here without a proxy, within 3 seconds? An impostor's certificate doesn't count."""
    return _answers(url, seconds=3)


# What HTTP_PROXY says is neither how our proxies reach the internet nor how we reach ourselves.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _answers(url: str, *, seconds: float) -> bool:
    try:
        with _DIRECT.open(url, timeout=seconds):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except (OSError, http.client.HTTPException):
        return False

"""What is asked of a probe, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from proxyfleet.fleet.models import Proxy

Key = TypeVar("Key")
"""The caller's name for a proxy, which the probe hands back."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a result is about: an instance of a proxy, not just the proxy."""

    proxy_id: int
    instance_serial: int

    @classmethod
    def of(cls, proxy: Proxy) -> Self:
        return cls(proxy.pk, proxy.instance_serial)


class Stage(StrEnum):
    """How far a probe came; its stages follow in this order. Plain http has neither tunnel nor TLS."""

    CONNECT = "connect"
    TUNNEL = "tunnel"
    TLS = "tls"
    RESPONSE = "response"


class Outcome(StrEnum):
    """What came of a probe. The values are shown to users and label metrics."""

    OK = "Ok"
    CONNECT_FAILED = "ConnectFailed"
    """No connection to the proxy: unresolved, unreachable or forbidden."""
    CONNECT_REFUSED = "ConnectRefused"
    """Nothing listens on the proxy's port."""
    CREDENTIALS_MISSING = "CredentialsMissing"
    """The Secret that holds the proxy's credentials can't be read: nothing was tried."""
    PROXY_AUTH_REQUIRED = "ProxyAuthRequired"
    """The proxy wants credentials, or other ones."""
    TUNNEL_REFUSED = "TunnelRefused"
    """The proxy answered CONNECT with an error, or hung up on it."""
    TLS_FAILED = "TLSFailed"
    """No trusted TLS session with the target through the tunnel."""
    TIMEOUT = "Timeout"
    """The deadline passed; the stage says what was waited for."""
    BAD_STATUS = "BadStatus"
    """A response arrived, with a status that was not expected."""
    PROTOCOL_ERROR = "ProtocolError"
    """What arrived is not HTTP, is cut short, or is far too long; or the URL itself can't be fetched."""


@dataclass(frozen=True, slots=True)
class ProxyCredentials:
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProbeRequest(Generic[Key]):
    """What to fetch, through which proxy."""

    key: Key
    proxy_host: str
    """IPv4, IPv6 (without brackets) or DNS name."""
    proxy_port: int
    url: str
    timeout_seconds: float
    """For the whole probe, from the name's resolution to the last byte."""
    expected_status: frozenset[int] | None = None
    """None: any 2xx or 3xx."""
    credentials: ProxyCredentials | None = field(default=None, repr=False)
    public_names: bool = False
    """A proxy that goes by a name must be in the internet."""

    def expects(self, status: int) -> bool:
        return 200 <= status < 400 if self.expected_status is None else status in self.expected_status


@dataclass(frozen=True, slots=True)
class ProbeResult(Generic[Key]):
    key: Key
    outcome: Outcome
    stage: Stage
    """The stage that the probe ended in."""
    seconds: Mapping[Stage, float]
    """Time spent in each stage that was entered."""
    message: str
    """One line for a person, without credentials or text of the peer; empty when all is well."""
    status: int | None = None
    """Of the last HTTP response, the proxy's or the target's."""
    egress_ip: str | None = None
    """The address that the target saw, where it tells."""
    leaking_headers: tuple[str, ...] | None = None
    """Names of headers that told the target whom the proxy works for; None where the target does not tell."""
    url: str = ""
    """What was fetched."""

    @property
    def is_ok(self) -> bool:
        return self.outcome is Outcome.OK

"""What SSH and libvirt refuse, in the contract's terms. The reasons are those that a provider check reports."""

from __future__ import annotations

from enum import IntEnum

from providers.errors import (
    AuthenticationFailed,
    Blocked,
    InstanceNotFound,
    InvalidRequest,
    Misconfigured,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Unavailable,
)


class Code(IntEnum):
    """libvirt's error numbers that are told apart (virErrorNumber); stable since they were introduced."""

    NO_MEMORY = 2
    NO_SUPPORT = 3
    INVALID_ARGUMENT = 8
    OPERATION_FAILED = 9
    DOMAIN_EXISTS = 12
    XML_ERROR = 27
    SYSTEM_ERROR = 38
    RPC = 39
    NO_DOMAIN = 42
    NO_NETWORK = 43
    AUTH_FAILED = 45
    NO_STORAGE_POOL = 49
    NO_STORAGE_VOL = 50
    OPERATION_INVALID = 55
    CONFIG_UNSUPPORTED = 67
    OPERATION_TIMEOUT = 68
    AUTH_CANCELLED = 79
    NO_DOMAIN_METADATA = 80
    OPERATION_UNSUPPORTED = 84
    AGENT_UNRESPONSIVE = 86
    ACCESS_DENIED = 88
    STORAGE_VOL_EXISTS = 90
    XML_INVALID = 91
    AUTH_UNAVAILABLE = 93


class Unreachable(Unavailable):
    """No road to the host's sshd, or it was lost."""


class Timeout(Unavailable):
    """The host took the call and did not answer in time."""


class SSHHandshakeFailed(Unavailable):
    """Something answers at the port, yet no SSH session came of it."""


class HostKeyMismatch(Blocked):
    """The host shows another key than the pinned one: only a person can tell a new host from an attack."""


class PoolNotFound(Misconfigured):
    """The host has no such storage pool, or it is not active."""


class NetworkNotFound(Misconfigured):
    """The host has no such network, or it is not active."""


class KeyUnusable(Misconfigured):
    """The key file or the known_hosts file is there and can't be used: it will not heal by itself."""

    @property
    def reason(self) -> str:
        return "Misconfigured"


def translate(code: int, text: str, *, host: str, call: str) -> ProviderError:
    """The error for a call that libvirt refused with ``code``; ``text`` is for the operator alone."""
    detail = f"{host}: {call}: {text} (libvirt error {code})"
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return QuotaExceeded(f"host {host} has no space left for the disks of the instance", detail=detail)
    match code:
        case Code.NO_DOMAIN:
            return InstanceNotFound(f"host {host} has no such domain", detail=detail)
        case Code.NO_STORAGE_POOL:
            return PoolNotFound(f"host {host} has no storage pool of the configured name", detail=detail)
        case Code.NO_NETWORK:
            return NetworkNotFound(f"host {host} has no network of the configured name", detail=detail)
        case Code.AUTH_FAILED | Code.AUTH_CANCELLED | Code.AUTH_UNAVAILABLE:
            return AuthenticationFailed(f"libvirt on host {host} does not accept the configured user", detail=detail)
        case Code.ACCESS_DENIED:
            return PermissionDenied(f"libvirt on host {host} refuses the configured user this call", detail=detail)
        case Code.NO_MEMORY:
            return QuotaExceeded(f"host {host} has no memory left for the instance", detail=detail)
        case Code.NO_SUPPORT | Code.CONFIG_UNSUPPORTED | Code.OPERATION_UNSUPPORTED:
            return Misconfigured(f"host {host} does not support what its entry asks for", detail=detail)
        case Code.XML_ERROR | Code.XML_INVALID | Code.INVALID_ARGUMENT:
            return InvalidRequest(f"libvirt on host {host} refuses the definition of the instance", detail=detail)
        case Code.RPC:
            # What came was no libvirt's, as when a login shell prints a word before the helper runs.
            return Unreachable(f"the connection to libvirt on host {host} is broken", detail=detail)
        case Code.OPERATION_TIMEOUT:
            return Timeout(f"libvirt on host {host} did not finish in time", detail=detail)
    if "Cannot allocate memory" in text:
        return QuotaExceeded(f"host {host} has no memory left for the instance", detail=detail)
    return Unavailable(f"libvirt on host {host} failed", detail=detail)

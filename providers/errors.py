"""The error tree of providers. A class exists only because the reconciler acts differently on it.

Every error carries two messages: ``str(error)`` for the owner of the proxy, ``error.detail`` for the operator's log.
Neither ever holds a secret, a token or cloud-init.
"""

from __future__ import annotations


class ProviderError(Exception):
    """Base of all that a driver raises; SDK exceptions never leave a driver."""

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail or message

    @property
    def reason(self) -> str:
        """CamelCase reason for conditions and events."""
        return type(self).__name__


class Unavailable(ProviderError):
    """Transient: the backend, or the road to it, is down. Says nothing about the instance. Retried for ever."""

    def __init__(self, message: str, *, detail: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, detail=detail)
        self.retry_after = retry_after
        """Seconds that the backend asked us to wait, if it did."""


class Blocked(ProviderError):
    """Nothing is wrong with the proxy's spec, but someone else must act first: it waits, with a long backoff."""


class QuotaExceeded(Blocked):
    """The backend has no capacity, or none left for us."""


class AuthenticationFailed(Blocked):
    """The backend does not accept our credentials; they are read again at the next try."""


class PermissionDenied(Blocked):
    """The backend knows us and refuses this call."""


class Misconfigured(Blocked):
    """The entry can't work as configured on this machine: a driver, a library or a program is missing or fails."""


class PermanentError(ProviderError):
    """Repeating the call with the same spec can't work: latches the proxy as Failed until its spec changes."""


class InvalidRequest(PermanentError):
    """The spec asks for something that the backend can't do; the message names the field."""


class Conflict(PermanentError):
    """The name or id is held by an owner that is not us; nothing of theirs is adopted or destroyed."""


class InstanceNotFound(ProviderError):
    """The instance is really gone. Raised by ``get`` only, and only when the backend itself said so."""

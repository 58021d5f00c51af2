"""Why a target of a provider entry is or isn't ready: the fixed reasons that operators see and alert on."""

from __future__ import annotations

from enum import StrEnum

from providers.errors import (
    AuthenticationFailed,
    Misconfigured,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Unavailable,
)


class CheckReason(StrEnum):
    """The reasons of ProviderHealth. Scripts and alerts match them, so none is ever renamed."""

    HEALTHY = "Healthy"
    UNREACHABLE = "Unreachable"
    TIMEOUT = "Timeout"
    SSH_HANDSHAKE_FAILED = "SSHHandshakeFailed"
    HOST_KEY_MISMATCH = "HostKeyMismatch"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    PERMISSION_DENIED = "PermissionDenied"
    POOL_NOT_FOUND = "PoolNotFound"
    STORAGE_NOT_FOUND = "StorageNotFound"
    NETWORK_NOT_FOUND = "NetworkNotFound"
    TEMPLATE_NOT_FOUND = "TemplateNotFound"
    QUOTA_EXCEEDED = "QuotaExceeded"
    API_ERROR = "APIError"
    MISCONFIGURED = "Misconfigured"


_REASONS: tuple[tuple[type[ProviderError], CheckReason], ...] = (
    (Unavailable, CheckReason.UNREACHABLE),
    (AuthenticationFailed, CheckReason.AUTHENTICATION_FAILED),
    (PermissionDenied, CheckReason.PERMISSION_DENIED),
    (QuotaExceeded, CheckReason.QUOTA_EXCEEDED),
    (Misconfigured, CheckReason.MISCONFIGURED),
)


def reason_of(error: ProviderError) -> CheckReason:
    """The reason that an error of a driver stands for, where the driver knows none that is closer."""
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), CheckReason.API_ERROR)

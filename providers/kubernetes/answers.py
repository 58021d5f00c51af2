"""What an API server's refusal means to a proxy: its ``Status`` object as an error of ours. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.errors import (
    AuthenticationFailed,
    Conflict,
    InstanceNotFound,
    InvalidRequest,
    Misconfigured,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Unavailable,
)

SPEC_FIELDS = {
    "spec.containers[0].image": "placement.image",
    "spec.containers[0].ports[0].containerPort": "port",
    "spec.nodeSelector": "placement.zone",
}
"""The field of a pod, as the server names it, and that of the proxy which it was made from."""


def error_of(code: int, answer: Mapping[str, Any], *, retry_after: float | None = None) -> ProviderError:
    """``answer`` is the body, or empty when it was no ``Status``: then a load balancer spoke, not the API server.

    Conflict means that the name is taken; InstanceNotFound that the server itself has no such pod.
    """
    reason, message = answer.get("reason"), answer.get("message") or f"the API server answered {code}"
    details = answer.get("details") or {}
    detail = f"HTTP {code} {reason or ''}: {message}"
    match code, reason:
        case 401, _:
            return AuthenticationFailed("the cluster does not accept our credentials", detail=detail)
        case 403, "Forbidden" if "exceeded quota" in message:
            return QuotaExceeded(f"the namespace's quota is used up: {message}", detail=detail)
        case 403, _:
            return PermissionDenied(f"the cluster refuses it: {message}", detail=detail)
        case 404, "NotFound" if details.get("kind") == "pods":
            return InstanceNotFound(message, detail=detail)
        case 404, "NotFound" if details.get("kind") == "namespaces":
            return Misconfigured(f"{message}: make it, or name another one in the providers file", detail=detail)
        case 409, "AlreadyExists":
            return Conflict(message, detail=detail)
        case ((400 | 422), ("BadRequest" | "Invalid")):
            return InvalidRequest(_fields(details) or message, detail=detail)
    asked_to_wait = retry_after if retry_after is not None else details.get("retryAfterSeconds")
    return Unavailable(f"the cluster can't do it now: {message}", detail=detail, retry_after=asked_to_wait)


def _fields(details: Mapping[str, Any]) -> str:
    causes = [(str(cause.get("field", "")), str(cause.get("message", ""))) for cause in details.get("causes") or ()]
    return "; ".join(f"{SPEC_FIELDS.get(field, field)}: {message}" for field, message in causes)

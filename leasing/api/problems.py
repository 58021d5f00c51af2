"""Every error of the API as an RFC 9457 problem with a stable ``code``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from leasing.allocation import Contended
from leasing.api.answers import Problem
from leasing.errors import IdempotencyKeyReused, InvalidRequest, LeaseEnded, LeaseNotFound, NoProxyAvailable
from proxyfleet.fleet.operations import NotAllowed
from proxyfleet.fleet.spec import InvalidSpec

CONTENT_TYPE = "application/problem+json"
CONTENDED_RETRY_SECONDS = 1

_CODES = {
    400: "invalid_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    415: "unsupported_media_type",
}


class PayloadTooLarge(exceptions.APIException):
    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_detail = "The body is too large."
    default_code = "payload_too_large"


class LengthRequired(exceptions.APIException):
    status_code = HTTPStatus.LENGTH_REQUIRED
    default_detail = "Send the body with a Content-Length, not in chunks."
    default_code = "length_required"


class NotFound(exceptions.APIException):
    """There is no such thing; ``code`` says of which kind."""

    status_code = HTTPStatus.NOT_FOUND


def problem(
    status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
) -> Response:
    """``members`` are further fields of Problem."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, code=code, **members).body()
    return Response(body, status=status, headers=dict(headers or {}), content_type=CONTENT_TYPE)


def exception_handler(error: Exception, _context: Mapping[str, Any]) -> Response | None:
    """For REST_FRAMEWORK. None: a bug, which Django reports as such."""
    match error:
        case NotAllowed():
            return problem(409, "not_allowed", str(error))
        case InvalidRequest() | InvalidSpec():
            return problem(400, "invalid_request", str(error), errors=error.errors)
        case LeaseNotFound():
            return problem(404, "lease_not_found", "There is no such lease.")
        case LeaseEnded():
            return problem(410, "lease_ended", str(error), cause=error.cause, ended_at=error.ended_at)
        case IdempotencyKeyReused():
            return problem(422, "idempotency_key_reused", "This Idempotency-Key was used for another request.")
        case NoProxyAvailable():
            return _no_proxy(error)
        case Contended():
            return problem(
                503, "contended", "Others took every free slot that was tried.", headers=_retry(CONTENDED_RETRY_SECONDS)
            )
        case Http404():
            return problem(404, "not_found", "There is nothing here.")
        case exceptions.APIException():
            return _of_framework(error)
    return None


def _no_proxy(error: NoProxyAvailable) -> Response:
    shortage = error.shortage
    headers: dict[str, str] = {}
    if shortage.free_at is not None:
        headers = _retry((shortage.free_at - datetime.now(UTC)).total_seconds())
    counts = {name: getattr(shortage, name) for name in ("matching", "unhealthy", "full", "cooling", "draining")}
    return problem(409, "no_proxy_available", str(error), headers=headers, **counts)


def _of_framework(error: exceptions.APIException) -> Response:
    headers: dict[str, str] = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    status = error.status_code
    known = isinstance(error, LengthRequired | PayloadTooLarge | NotFound)
    code = str(error.detail.code) if known and isinstance(error.detail, exceptions.ErrorDetail) else _CODES[status]
    return problem(status, code, str(error.detail), headers=headers)


def _retry(seconds: float) -> dict[str, str]:
    """Never 0: a client that takes it literally would hammer us."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}

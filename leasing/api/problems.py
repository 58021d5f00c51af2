"""Every error of the API as an RFC 9457 problem with a stable ``code``."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from django.core.exceptions import DisallowedHost, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import exceptions

from leasing.allocation import Contended
from leasing.api.answers import Problem
from leasing.errors import IdempotencyKeyReused, InvalidRequest, LeaseEnded, LeaseNotFound, NoProxyAvailable
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.operations import NotAllowed
from proxyfleet.fleet.spec import InvalidSpec

CONTENT_TYPE = "application/problem+json"
CONTENDED_RETRY_SECONDS = 1
UNAVAILABLE_RETRY_SECONDS = 2
PREFIX = "/v1/"

logger = logging.getLogger(__name__)

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


class TooManyRequests(exceptions.APIException):
    status_code = HTTPStatus.TOO_MANY_REQUESTS
    default_detail = "The token made too many requests."
    default_code = "too_many_requests"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__()


class NotFound(exceptions.APIException):
    """There is no such thing; ``code`` says of which kind."""

    status_code = HTTPStatus.NOT_FOUND


def problem(
    status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
) -> JsonResponse:
    """``members`` are further fields of Problem. JSON whatever the caller accepts and the view renders otherwise."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, code=code, **members).body()
    return JsonResponse(body, status=status, headers=dict(headers or {}), content_type=CONTENT_TYPE)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """For Django's ``handler400``: what was refused before it came to a view, as for a Host that is not ours."""
    if not request.path.startswith(PREFIX):
        return defaults.bad_request(request, exception)
    return _suspicious(exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """For Django's ``handler500``: a bug, whose traceback is in the log."""
    if not request.path.startswith(PREFIX):
        return defaults.server_error(request)
    return problem(500, "internal_error", "The server failed; its log tells why.")


def exception_handler(error: Exception, context: Mapping[str, Any]) -> JsonResponse | None:
    """For our views and REST_FRAMEWORK. None: a bug, which Django reports as such."""
    match error:
        case exceptions.MethodNotAllowed():
            headers = {"Allow": ", ".join(context["view"].allowed_methods)}
            return problem(405, "method_not_allowed", str(error.detail), headers=headers)
        case NotAllowed():
            return problem(409, "not_allowed", str(error))
        case InvalidRequest() | InvalidSpec():
            return problem(400, "invalid_request", str(error), errors=error.errors)
        case Proxy.DoesNotExist():
            return problem(404, "proxy_not_found", "The proxy has gone in this very moment.")
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
        case OperationalError() | InterfaceError():
            logger.warning("The database did not serve a request: %s", error)
            return problem(
                503, "unavailable", "The database can't be reached.", headers=_retry(UNAVAILABLE_RETRY_SECONDS)
            )
        case RequestDataTooBig():
            return _of_framework(PayloadTooLarge())
        case SuspiciousOperation():
            return _suspicious(error)
        case Http404():
            return problem(404, "not_found", "There is nothing here.")
        case exceptions.APIException():
            return _of_framework(error)
    return None


def _suspicious(error: Exception) -> JsonResponse:
    if isinstance(error, DisallowedHost):
        return problem(400, "invalid_request", "The Host header is none of PROXYFLEET_ALLOWED_HOSTS.")
    return problem(400, "invalid_request", "The request can't be accepted as it is.")


def _no_proxy(error: NoProxyAvailable) -> JsonResponse:
    shortage = error.shortage
    headers: dict[str, str] = {}
    if shortage.free_at is not None:
        headers = _retry((shortage.free_at - datetime.now(UTC)).total_seconds())
    counts = {name: getattr(shortage, name) for name in ("matching", "unhealthy", "full", "cooling", "draining")}
    return problem(409, "no_proxy_available", str(error), headers=headers, **counts)


def _of_framework(error: exceptions.APIException) -> JsonResponse:
    headers: dict[str, str] = {}
    status = error.status_code
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="proxyfleet"'
    if isinstance(error, TooManyRequests):
        headers |= _retry(error.seconds)
    known = isinstance(error, LengthRequired | PayloadTooLarge | TooManyRequests | NotFound)
    code = str(error.detail.code) if known and isinstance(error.detail, exceptions.ErrorDetail) else _CODES[status]
    return problem(status, code, str(error.detail), headers=headers)


def _retry(seconds: float) -> dict[str, str]:
    """Never 0: a client that takes it literally would hammer us."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}

"""What the SDK and the libraries below it raise, in the contract's terms."""

from __future__ import annotations

import random
import re
from typing import Literal

from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError
from google.cloud.compute_v1.types import Operation
from google.protobuf.json_format import ParseError
from requests.exceptions import RequestException, Timeout

from providers.errors import (
    AuthenticationFailed,
    InvalidRequest,
    Misconfigured,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Unavailable,
)

RAISED = (GoogleAPIError, GoogleAuthError, RequestException, ParseError)
"""All that a call can raise. They have no common base."""

RATE_LIMIT_SECONDS = (20.0, 60.0)
"""Limits are counted per minute. Those who were refused together come back spread over this range."""

LONGEST_MESSAGE = 500

_LATE_REFUSALS: tuple[tuple[re.Pattern[str], type[ProviderError]], ...] = (
    (re.compile("QUOTA|EXHAUSTED|STOCKOUT|RESOURCE_AVAILABILITY"), QuotaExceeded),
    (re.compile("PERMISSION|ACCESS|FORBIDDEN|CONDITION_NOT_MET"), PermissionDenied),
    (re.compile("INVALID|NOT_FOUND|UNSUPPORTED"), InvalidRequest),
)
"""By the code of an operation's error; new ones keep coming, with these words in them."""

_OF_THE_ENTRY = re.compile(r"'projects/[^/']+(/zones/[^/']+|/global/networks/[^']+)?' was not found")
"""What the providers file names, or a zone that is gone: no spec of a proxy is to blame, and nothing in it is gone."""

_RATE_REASONS = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})


class NoAnswer(Unavailable):
    """Unavailable, and what a check says of it."""

    def __init__(
        self,
        message: str,
        *,
        detail: str = "",
        retry_after: float | None = None,
        finding: Literal["Unreachable", "Timeout", "APIError"],
    ) -> None:
        super().__init__(message, detail=detail, retry_after=retry_after)
        self.finding = finding

    @property
    def reason(self) -> str:
        return Unavailable.__name__


def translate(error: Exception) -> ProviderError:
    """The ProviderError that stands for one of RAISED; it holds nothing that the instance was made from."""
    if isinstance(error, GoogleAPICallError):
        return _translate_answer(error)
    detail = f"{type(error).__name__}: {_harmless(str(error))}"
    if isinstance(error, DefaultCredentialsError):
        return Misconfigured("there are no usable Google credentials where the product runs", detail=detail)
    if isinstance(error, GoogleAuthError) and (isinstance(error, TransportError) or error.retryable):
        return NoAnswer("Google's token service does not answer", detail=detail, finding="Unreachable")
    if isinstance(error, GoogleAuthError):
        told = "gives no token for" if isinstance(error, RefreshError) else "does not take"
        return AuthenticationFailed(f"Google {told} the product's credentials", detail=detail)
    if isinstance(error, Timeout):
        return NoAnswer("Compute Engine did not answer in time", detail=detail, finding="Timeout")
    if isinstance(error, RequestException):
        return NoAnswer("Compute Engine can't be reached", detail=detail, finding="Unreachable")
    return NoAnswer("Compute Engine's answer can't be read", detail=detail, finding="APIError")


def _translate_answer(error: GoogleAPICallError) -> ProviderError:
    code = int(error.code or 0)
    reason = reason_of(error)
    told = _harmless(told_by(error))
    detail = f"HTTP {code} {reason}: {told}"
    if code == 429 or reason in _RATE_REASONS:
        return NoAnswer(
            "Compute Engine's rate limit is reached",
            detail=detail,
            retry_after=max(_asked_to_wait(error), random.uniform(*RATE_LIMIT_SECONDS)),
            finding="APIError",
        )
    if code == 401:
        return AuthenticationFailed("Google does not take the product's credentials", detail=detail)
    if reason == "quotaExceeded":
        return QuotaExceeded(told, detail=detail)
    if code in (403, 412):
        return PermissionDenied(told, detail=detail)
    if code == 404 and _OF_THE_ENTRY.search(told):
        return Misconfigured(told, detail=detail)
    if code in (400, 404) and reason != "resourceNotReady":
        return InvalidRequest(told, detail=detail)
    return NoAnswer(f"Compute Engine fails at the moment (HTTP {code})", detail=detail, finding="APIError")


def refusal_of(operation: Operation) -> ProviderError | None:
    """Why an operation failed, when another try would be refused alike; None when it did not, or by mere accident.

    Read from ``error.errors``: the operation's HTTP fields are not always there.
    """
    for error in operation.error.errors:
        for codes, refusal in _LATE_REFUSALS:
            if codes.search(error.code):
                told = f"{_harmless(error.message) or 'Compute Engine gives no reason'} ({error.code})"
                return refusal(told, detail=f"{operation.name}: {told}")
    return None


def reason_of(error: GoogleAPICallError) -> str:
    """``errors[].reason``: all that tells a quota from a rate limit from a missing permission, each a 403."""
    reasons = [str(found.get("reason", "")) for found in error.errors if isinstance(found, dict)]
    return next(filter(None, reasons), "")


def told_by(error: GoogleAPICallError) -> str:
    """Compute Engine's own words; the SDK's message begins with the request."""
    messages = [str(found.get("message", "")) for found in error.errors if isinstance(found, dict)]
    return next(filter(None, messages), str(error.message))


def _asked_to_wait(error: GoogleAPICallError) -> float:
    value = getattr(error.response, "headers", {}).get("Retry-After", "")
    return float(value) if value.isdecimal() else 0.0


def _harmless(message: str) -> str:
    """Compute Engine quotes the value that it refuses, and a value of metadata is cloud-init."""
    message = re.sub(r"(field 'resource\.metadata[^']*').*", r"\1 (the value is not shown)", message, flags=re.DOTALL)
    return message[:LONGEST_MESSAGE]

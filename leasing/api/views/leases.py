"""Take a lease, keep it, report on it, give it back."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, ClassVar
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter

from leasing import operations, queries
from leasing.allocation import Wish
from leasing.api.answers import Acquired, LeaseAnswer, LeaseList, ReportAnswer
from leasing.api.base import View, answer, json_object, parse_body
from leasing.api.openapi import call
from leasing.api.requests import LeaseRequest, RenewRequest, ReportRequest
from leasing.errors import InvalidRequest, LeaseNotFound
from leasing.operations import RequestKey
from leasing.tokens import Scope

IDEMPOTENCY_KEY = "Idempotency-Key"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_GONE = {404: "lease_not_found", 410: "lease_ended"}


class Leases(View):
    scopes: ClassVar = {"POST": Scope.LEASE}

    @call(
        "acquireLeases",
        body=LeaseRequest,
        answers={201: Acquired},
        problems={
            409: "no_proxy_available",
            410: "lease_ended",
            422: "idempotency_key_reused",
            503: "contended",
        },
        headers=(
            OpenApiParameter(
                IDEMPOTENCY_KEY,
                {"type": "string", "pattern": "^[!-~]{1,255}$"},
                OpenApiParameter.HEADER,
                description="The same key with the same body gets the same leases, for a day.",
            ),
        ),
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        """Lease the least loaded proxy that matches; of equals, the one that was idle for longest."""
        wanted = parse_body(request, LeaseRequest)
        leases = operations.acquire(
            Wish(
                selector=wanted.selector,
                target=wanted.target or "",
                exclude=wanted.exclude,
                client=wanted.client,
                owner=self.caller.name,
            ),
            count=wanted.count or 1,
            ttl_seconds=wanted.ttl_seconds,
            now=timezone.now(),
            request_key=_request_key(request),
        )
        return answer(LeaseAnswer.of(leases[0]) if wanted.count is None else LeaseList.of(leases), 201)


class LeaseView(View):
    scopes: ClassVar = {"GET": Scope.LEASE, "DELETE": Scope.LEASE}

    @call("readLease", answers={200: LeaseAnswer}, problems=_GONE)
    def get(self, _request: HttpRequest, lease_id: str) -> HttpResponse:
        """The lease, and how its proxy is now."""
        return answer(LeaseAnswer.of(queries.lease(_id(lease_id), timezone.now())))

    @call("releaseLease", answers={204: None}, problems={404: "lease_not_found"})
    def delete(self, _request: HttpRequest, lease_id: str) -> HttpResponse:
        """Give the lease back. One that is over already stays so."""
        operations.release(_id(lease_id), now=timezone.now())
        return HttpResponse(status=204)


class Renew(View):
    scopes: ClassVar = {"POST": Scope.LEASE}

    @call("renewLease", body=RenewRequest, answers={200: LeaseAnswer}, problems=_GONE)
    def post(self, request: HttpRequest, lease_id: str) -> HttpResponse:
        """Let the lease end `ttlSeconds` from now."""
        ttl_seconds = parse_body(request, RenewRequest).ttl_seconds
        lease = operations.renew(_id(lease_id), ttl_seconds=ttl_seconds, now=timezone.now())
        return answer(LeaseAnswer.of(lease))


class Report(View):
    scopes: ClassVar = {"POST": Scope.LEASE}

    @call("reportOnLease", body=ReportRequest, answers={200: ReportAnswer}, problems=_GONE)
    def post(self, request: HttpRequest, lease_id: str) -> HttpResponse:
        """Say how a request went. A refusal rests the proxy for that target; a failure has the proxy probed."""
        said = parse_body(request, ReportRequest)
        until = operations.report(
            _id(lease_id),
            result=said.result,
            target=said.target or "",
            cooldown_seconds=said.cooldown_seconds,
            now=timezone.now(),
        )
        return answer(ReportAnswer(cooldown_until=until))


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise LeaseNotFound from None


def _request_key(request: HttpRequest) -> RequestKey | None:
    key = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise InvalidRequest({IDEMPOTENCY_KEY: ["must be 1 to 255 printable ASCII characters without spaces"]})
    return RequestKey(key, fingerprint=_fingerprint(json_object(request)))


def _fingerprint(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

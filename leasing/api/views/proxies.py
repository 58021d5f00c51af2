"""See what there is to lease; declare it and take it away."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from leasing import queries
from leasing.api.answers import ProxyInDetail, ProxyPage, ProxySummary
from leasing.api.base import View, answer, json_object, parse_query
from leasing.api.openapi import call
from leasing.api.pages import next_url, proxies_after
from leasing.api.problems import NotFound
from leasing.api.requests import ProxyQuery
from leasing.tokens import Scope
from proxyfleet.fleet import operations as fleet
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.spec import InvalidSpec, ProxySpec, check_identity

PUT_ATTEMPTS = 30
"""Each failed one means that someone else has changed the proxy meanwhile; far beyond what clients can bring about."""

_UNKNOWN = {404: "proxy_not_found"}


class Proxies(View):
    scopes: ClassVar = {"GET": Scope.READ}
    reads_query = True

    @call("listProxies", query=ProxyQuery, answers={200: ProxyPage})
    def get(self, request: HttpRequest) -> HttpResponse:
        """The proxies that pass every filter, in the order of their names."""
        query = parse_query(request, ProxyQuery)
        equal = {
            column: value
            for column in ("phase", "mode", "provider", "namespace")
            if (value := getattr(query, column)) is not None
        }
        found = queries.proxies(
            healthy=query.healthy,
            available=query.available,
            target=query.target,
            selector=query.selector,
            now=timezone.now(),
            **equal,
        )
        page = list(proxies_after(found, request, query.cursor)[: query.limit + 1])
        shown, is_last = page[: query.limit], len(page) <= query.limit
        last = shown[-1] if shown else None
        following = None if is_last or last is None else next_url(request, [last.namespace, last.name, last.pk])
        return answer(ProxyPage(items=[ProxySummary.of(proxy) for proxy in shown], next=following))


class ProxyView(View):
    scopes: ClassVar = {"GET": Scope.READ, "PUT": Scope.OPERATE, "DELETE": Scope.OPERATE}

    @call("readProxy", answers={200: ProxyInDetail}, problems=_UNKNOWN)
    def get(self, _request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        """One proxy, with its leases, cooldowns and what happened to it lately."""
        return _show(_find(namespace, name))

    @call(
        "putProxy",
        body=ProxySpec,
        answers={200: ProxyInDetail, 201: ProxyInDetail},
        problems={409: "not_allowed"},
    )
    def put(self, request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        """Declare the proxy, or change what is wanted of it; what is left out goes back to its default."""
        check_identity(namespace, name)
        spec: dict[str, Any] = json_object(request)
        actor, now = self.caller.name, timezone.now()
        for _ in range(PUT_ATTEMPTS - 1):
            try:
                return _put(namespace, name, spec, actor, now)
            except fleet.OwnedByTheCluster:
                raise
            except (fleet.NameTaken, fleet.NotAllowed, Proxy.DoesNotExist):
                continue  # someone else declared it, or had it deleted, since we looked
        return _put(namespace, name, spec, actor, now)

    @call("deleteProxy", answers={202: ProxyInDetail}, problems=_UNKNOWN | {409: "not_allowed"})
    def delete(self, _request: HttpRequest, namespace: str, name: str) -> HttpResponse:
        """Ask for the proxy to go. It is leased no more, drained, and gone once its instance is."""
        there = _find(namespace, name)
        return _show(fleet.request_deletion(there.pk, actor=self.caller.name, now=timezone.now()), status=202)


def _put(namespace: str, name: str, spec: dict[str, Any], actor: str, now: datetime) -> HttpResponse:
    there = queries.proxy(namespace, name)
    if there is None or there.deletion_requested_at is not None:
        return _show(fleet.declare(namespace, name, spec, actor=actor, now=now), status=201)
    return _show(fleet.update(there.pk, spec, actor=actor, now=now))


def _find(namespace: str, name: str) -> Proxy:
    unknown = NotFound(f"There is no proxy {namespace}/{name}.", code="proxy_not_found")
    try:
        check_identity(namespace, name)
    except InvalidSpec:
        raise unknown from None
    proxy = queries.proxy(namespace, name)
    if proxy is None:
        raise unknown
    return proxy


def _show(proxy: Proxy, status: int = 200) -> HttpResponse:
    return answer(ProxyInDetail.of_detail(queries.detail(proxy, timezone.now())), status)

"""The dashboard: part of the admin's index, and fetched again by its page while somebody looks."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from proxyfleet.dashboard import page
from proxyfleet.dashboard.attention import may

PERMISSION = "fleet.view_proxy"


def index(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The context of the admin's index, for django-unfold; without the dashboard for who may not see proxies."""
    if not may(request.user, PERMISSION):
        return context
    return context | {"title": "Dashboard", "dashboard": page.page_of(request.user, timezone.now())}


def parts(request: HttpRequest) -> HttpResponse:
    """What changes of the dashboard."""
    _require(request)
    return render(request, "admin/dashboard/parts.html", {"dashboard": page.page_of(request.user, timezone.now())})


def queues(request: HttpRequest) -> HttpResponse:
    """Workers and queues: by itself, as a broker that is down is waited for."""
    _require(request)
    return render(request, "admin/dashboard/queues.html", page.queues_of(timezone.now()))


def _require(request: HttpRequest) -> None:
    if not may(request.user, PERMISSION):
        raise PermissionDenied

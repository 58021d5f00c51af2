"""Checks for an orchestrator: is this process alive, and can it do its work?"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse

from proxyfleet.fleet.readiness import problems


def healthz(_request: HttpRequest) -> HttpResponse:
    """The process answers; says nothing about what it depends on."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> HttpResponse:
    """200 when database, migrations and broker are usable, else 503 that names what is not.

    ``?exclude=broker`` leaves that out, as in Kubernetes: leases take no broker.
    """
    found = problems(exclude=request.GET.getlist("exclude"))
    return JsonResponse({"status": "unready" if found else "ok", **found}, status=503 if found else 200)

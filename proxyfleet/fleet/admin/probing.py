"""What health found out beyond verdicts: suspect probe targets, and proxies whose way out is not as it should be."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin

from proxyfleet.fleet.admin.badges import badge
from proxyfleet.fleet.egress import leaking_address, sharing_egress
from proxyfleet.fleet.models import ProbeTarget, Proxy
from proxyfleet.fleet.templatetags.ages import age


class EgressFilter(admin.SimpleListFilter):
    title = "egress"
    parameter_name = "egress"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin) -> list[tuple[str, str]]:
        return [("shared", "Shares its address"), ("leaking", "Leaks its user's")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Proxy]) -> QuerySet[Proxy]:
        match self.value():
            case "shared":
                return queryset.filter(pk__in=sharing_egress())
            case "leaking":
                return queryset.filter(pk__in=leaking_address())
        return queryset


def egress_badges(proxy: Proxy) -> list[SafeString]:
    """For the page of one proxy."""
    badges = []
    if proxy.probed_serial == proxy.instance_serial and proxy.leaking_headers:
        badges.append(badge("leaks address", "danger", f"It tells targets whom it works for: {proxy.leaking_headers}"))
    if proxy.egress_ip and sharing_egress(among=[proxy.egress_ip]).filter(pk=proxy.pk).exists():
        badges.append(badge("shared egress", "warning", f"Targets see another proxy as {proxy.egress_ip}, too"))
    return badges


def suspect_targets(now: datetime) -> list[dict[str, Any]]:
    """Probe targets whose breaker is open: host, since when, and what was seen, for a banner."""
    return [
        {
            "host": target.host,
            "since": age(target.suspect_since, now),
            "failed": target.failed,
            "heard": target.heard,
            "stage": target.stage,
            "message": target.message,
        }
        for target in ProbeTarget.objects.exclude(suspect_since=None)
        if target.suspect_since is not None
    ]

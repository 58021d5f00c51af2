"""Events: what happened to all proxies, to be read and searched only."""

from __future__ import annotations

from typing import ClassVar

from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.decorators import display

from proxyfleet.fleet.models import ProxyEvent


@admin.register(ProxyEvent)
class ProxyEventAdmin(ModelAdmin):
    list_display: ClassVar = ["at_", "proxy_", "kind", "phases", "reason", "message", "actor_"]
    list_filter: ClassVar = ["kind"]
    search_fields: ClassVar = ["name"]
    search_help_text = "Name of the proxy"
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    ordering: ClassVar = ["-id"]
    fields: ClassVar = ["at", "proxy_", "proxy_uid", "kind", "phases", "reason", "message", "actor_"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: ProxyEvent | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ProxyEvent | None = None) -> bool:
        return False

    @display(description="Time", ordering="id")
    def at_(self, event: ProxyEvent) -> str:
        return f"{event.at:%Y-%m-%d %H:%M:%S}"

    @display(description="Proxy")
    def proxy_(self, event: ProxyEvent) -> str:
        return f"{event.namespace}/{event.name}"

    @display(description="Phase", empty_value="")
    def phases(self, event: ProxyEvent) -> str | None:
        return f"{event.old_phase} → {event.new_phase}" if event.new_phase else None

    @display(description="By")
    def actor_(self, event: ProxyEvent) -> str:
        return event.actor or "proxyfleet"

"""Events: what happened to all proxies, to be read and searched only."""

from __future__ import annotations

from typing import ClassVar

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from unfold.admin import ModelAdmin

from proxyfleet.fleet.models import ProxyEvent


@admin.register(ProxyEvent)
class ProxyEventAdmin(ModelAdmin):
    list_display: ClassVar = ["at_", "proxy_", "what", "reason", "message", "actor_"]
    list_filter: ClassVar = ["kind"]
    search_fields: ClassVar = ["name"]
    search_help_text = "Name of the proxy"
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    ordering: ClassVar = ["-id"]
    empty_value_display = ""
    fields: ClassVar = ["at_", "proxy_", "proxy_uid", "what", "reason", "message", "actor_"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: ProxyEvent | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ProxyEvent | None = None) -> bool:
        return False

    @admin.display(description="Time", ordering="id")
    def at_(self, event: ProxyEvent) -> str:
        return f"{event.at:%Y-%m-%d %H:%M:%S} UTC"

    @admin.display(description="Proxy")
    def proxy_(self, event: ProxyEvent) -> str:
        name = f"{event.namespace}/{event.name}"
        if event.proxy_id is None:
            return name
        page = reverse("admin:fleet_proxy_change", args=[event.proxy_id])
        return format_html('<a class="fleet-link" href="{}">{}</a>', page, name)

    @admin.display(description="Event", ordering="kind")
    def what(self, event: ProxyEvent) -> str:
        return f"{event.old_phase} → {event.new_phase}" if event.new_phase else event.get_kind_display()

    @admin.display(description="By")
    def actor_(self, event: ProxyEvent) -> str:
        return event.actor or "proxyfleet"

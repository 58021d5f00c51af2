"""Events: what happened to all proxies, to be read and searched only."""

from __future__ import annotations

from typing import ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from proxyfleet.fleet.admin.badges import event_badge
from proxyfleet.fleet.admin.records import RecordAdmin
from proxyfleet.fleet.models import ProxyEvent


@admin.register(ProxyEvent)
class ProxyEventAdmin(RecordAdmin):
    list_display: ClassVar = ["at_", "proxy_", "what", "why", "actor_"]
    list_display_links = ("at_",)
    list_filter: ClassVar = ["kind"]
    search_fields: ClassVar = ["name"]
    search_help_text = "Part of a proxy's name"
    exact_lookups = ("proxy_uid",)
    deep_search = True
    empty_value_display = ""
    fields: ClassVar = ["at_", "proxy_", "proxy_uid", "what", "reason", "message", "actor_"]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[ProxyEvent], search_term: str
    ) -> tuple[QuerySet[ProxyEvent], bool]:
        """By any part of the name, or by ``namespace/name``. Names are lower case, as the index needs them."""
        namespace, slash, name = search_term.strip().lower().rpartition("/")
        if slash:
            queryset = queryset.filter(namespace=namespace)
        return (queryset.filter(name__contains=name) if name else queryset), False

    @admin.display(description="Time")
    def at_(self, event: ProxyEvent) -> str:
        return f"{event.at:%Y-%m-%d %H:%M:%S} UTC"

    @admin.display(description="Proxy")
    def proxy_(self, event: ProxyEvent) -> str:
        name = f"{event.namespace}/{event.name}"
        if event.proxy_id is None:
            return name
        page = reverse("admin:fleet_proxy_change", args=[event.proxy_id])
        return format_html('<a class="fleet-link" href="{}">{}</a>', page, name)

    @admin.display(description="Event")
    def what(self, event: ProxyEvent) -> str:
        return event_badge(event)

    @admin.display(description="Why")
    def why(self, event: ProxyEvent) -> str:
        return ": ".join(filter(None, [event.reason, event.message]))

    @admin.display(description="By")
    def actor_(self, event: ProxyEvent) -> str:
        return event.actor or "proxyfleet"

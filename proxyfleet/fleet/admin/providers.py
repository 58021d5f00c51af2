"""Providers: the entries of the providers file, what checks and orphan sweeps found, and what a sweep would do now."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from unfold.admin import ModelAdmin

from providers.config import EXTERNAL
from providers.errors import ProviderError
from providers.registry import UnknownProvider
from proxyfleet.fleet import hints
from proxyfleet.fleet.admin.badges import badge, readiness_badge
from proxyfleet.fleet.admin.probing import suspect_targets
from proxyfleet.fleet.backends import providers
from proxyfleet.fleet.completeness import MirrorIncomplete
from proxyfleet.fleet.models import ProviderState
from proxyfleet.fleet.orphans import sweep
from proxyfleet.fleet.ports import ports
from proxyfleet.fleet.queues import CHECK_QUEUE
from proxyfleet.fleet.templatetags.ages import age


@admin.register(ProviderState)
class ProviderStateAdmin(ModelAdmin):
    """An entry has no row before its first sweep, so the pages are about entries, not about rows."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ProviderState | None = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name="fleet_providerstate_changelist"),
            path("<slug:object_id>/change/", view(self.change_view), name="fleet_providerstate_change"),
            path("<slug:entry>/check/", view(self.check_view), name="fleet_providerstate_check"),
            path("<slug:entry>/dry-run/", view(self.dry_run_view), name="fleet_providerstate_dry_run"),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        self._require(request, "view")
        now = timezone.now()
        states = {state.entry: state for state in ProviderState.objects.exclude(entry=EXTERNAL)}
        rows = [_row(name, states.get(name), now) for name in dict.fromkeys((*providers().names(), *states))]
        table = {"headers": ["Entry", "Type", "State", "Message", "Last sweep", "Orphans"], "rows": rows}
        return self._render(
            request, "admin/fleet/providers.html", title="Providers", table=table, suspect_targets=suspect_targets(now)
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self._require(request, "view")
        state = ProviderState.objects.filter(entry=object_id).first()
        is_configured = object_id in providers().names()
        if state is None and not is_configured:
            raise Http404
        return self._render(
            request,
            "admin/fleet/provider.html",
            title=object_id,
            may_look=is_configured and self.has_change_permission(request),
            is_asked="asked" in request.GET,
            facts=[
                ("Type", _type_of(object_id)),
                ("State", readiness_badge(state)),
                ("Since", state.check_changed_at if state else None),
                ("Last check", ports.probes.last_check(object_id) or ""),
                ("Message", state.check_message if state else ""),
            ],
            targets=_targets(state.check_targets if state else [], timezone.now()),
            sweep=[
                ("Last sweep", state.orphans_swept_at if state else None),
                ("Error", state.orphans_error if state else ""),
            ],
            orphans=_table(state.orphans if state else [], timezone.now()),
        )

    def check_view(self, request: HttpRequest, entry: str) -> HttpResponse:
        """Have a worker check the backend now: it is from there that it must be in reach."""
        self._require(request, "change")
        if entry not in providers().names():
            raise Http404
        url = reverse("admin:fleet_providerstate_change", args=[entry])
        if request.method != "POST":
            return HttpResponseRedirect(url)
        hints.send("health.check_provider", queue=CHECK_QUEUE, entry=entry)
        self.log_change(request, ProviderState(entry=entry), "Check asked for.")
        messages.success(request, f"A worker checks {entry} now; what it finds shows here.")
        return HttpResponseRedirect(f"{url}?asked")

    def dry_run_view(self, request: HttpRequest, entry: str) -> HttpResponse:
        """What a sweep would do now. Asks the backend, and so is for those who run things."""
        self._require(request, "change")
        now = timezone.now()
        found: list[dict[str, Any]] = []
        problem = ""
        try:
            found = [asdict(orphan) for orphan in sweep(entry, now, dry_run=True)]
        except UnknownProvider:
            raise Http404 from None
        except ProviderError as error:
            problem = f"{entry} can't be asked now ({error.reason}): {error}"
        except MirrorIncomplete as error:
            problem = f"Refused: {error}"
        return self._render(
            request, "admin/fleet/provider_dry_run.html", title=entry, orphans=_table(found, now), problem=problem
        )

    def _require(self, request: HttpRequest, verb: str) -> None:
        if not request.user.has_perm(f"fleet.{verb}_providerstate"):
            raise PermissionDenied

    def _render(self, request: HttpRequest, template: str, **context: Any) -> HttpResponse:
        request.current_app = self.admin_site.name
        site = self.admin_site.each_context(request)
        return TemplateResponse(request, template, {**site, "opts": self.opts, "now": timezone.now(), **context})


def _type_of(name: str) -> str:
    try:
        return providers().entry(name).type
    except UnknownProvider:
        return "not in the providers file any more"


def _row(name: str, state: ProviderState | None, now: datetime) -> list[Any]:
    link = format_html(
        '<a class="fleet-link" href="{}">{}</a>', reverse("admin:fleet_providerstate_change", args=[name]), name
    )
    row: list[Any] = [link, _type_of(name), readiness_badge(state)]
    if state is None:
        return [*row, "", "never", "—"]
    message = "; ".join(filter(None, [state.check_message, state.orphans_error]))
    if state.orphans_swept_at is None:
        return [*row, message, "never", "—"]
    return [*row, message, f"{age(state.orphans_swept_at, now)} ago", len(state.orphans)]


def _targets(targets: list[dict[str, Any]], now: datetime) -> dict[str, Any]:
    """What the last check said of each host, node or zone, for the theme's table."""
    return {
        "headers": ["Host, node or zone", "State", "For", "Message"],
        "rows": [
            [
                target["name"],
                badge(target["reason"], "success" if target["ready"] else "danger"),
                age(datetime.fromisoformat(target["lastTransitionTime"]), now),
                target["message"],
            ]
            for target in targets
        ],
    }


def _table(orphans: list[dict[str, Any]], now: datetime) -> dict[str, Any]:
    """Orphans, as a sweep reports them, for the theme's table."""
    return {
        "headers": ["Provider ID", "Owner", "Age", "Action", "Message"],
        "rows": [
            [
                orphan["provider_id"],
                f"{orphan['namespace']}/{orphan['name']}",
                age(datetime.fromisoformat(orphan["created_at"]), now),
                orphan["action"],
                orphan["message"],
            ]
            for orphan in orphans
        ],
    }

"""Proxies: the list, the page of one, and what is done to them."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString
from unfold.views import ChangeList

from proxyfleet.fleet.admin.badges import health_badge, state_badges
from proxyfleet.fleet.admin.editing import SpecEditing
from proxyfleet.fleet.admin.filters import AttributeFilter, ProviderFilter
from proxyfleet.fleet.admin.instance import ask
from proxyfleet.fleet.admin.page import page_of
from proxyfleet.fleet.admin.probing import EgressFilter
from proxyfleet.fleet.admin.shared import gone, page_url, person
from proxyfleet.fleet.admin.verbs import VERBS, Outcome, Verb, perform
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.ports import LastProbe, ports
from proxyfleet.fleet.templatetags.ages import age

NAMED_AT_MOST = 10
"""How many proxies a message names before it only counts the rest."""

ACTIVE_LEASES, LAST_PROBE = "active_leases", "last_probe"
"""Set on each proxy of a page of the list."""

NONE = format_html('<span class="fleet-none">{}</span>', "—")
"""Left out where there is little room."""

FILTERED = {
    "phase": admin.ChoicesFieldListFilter,
    "mode": admin.ChoicesFieldListFilter,
    "provider": ProviderFilter,
    "origin": admin.ChoicesFieldListFilter,
    "namespace": admin.AllValuesFieldListFilter,
    "cordoned": admin.BooleanFieldListFilter,
}


class ProxyChangeList(ChangeList):
    result_list: list[Proxy]

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        proxies = list(self.result_list)
        active = ports.leases.active_each([proxy.pk for proxy in proxies], timezone.now())
        probes = ports.probes.last_each([proxy.uid for proxy in proxies])
        for proxy in proxies:
            setattr(proxy, ACTIVE_LEASES, active.get(proxy.pk, 0))
            setattr(proxy, LAST_PROBE, probes.get(proxy.uid))
        self.result_list = proxies


@admin.register(Proxy)
class ProxyAdmin(SpecEditing):
    list_display: ClassVar = ["full_name", "phase_", "health", "provider_", "address_", "leases", "last_probe_", "age"]
    list_filter: ClassVar = [*FILTERED.items(), AttributeFilter, EgressFilter]
    list_filter_sheet = True
    search_fields: ClassVar = ["name", "address", "provider_id"]
    search_help_text = "Name, address or providerID"
    list_per_page = 50
    show_facets = admin.ShowFacets.NEVER

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<int:proxy_id>/edit/", view(self.edit_view), name="fleet_proxy_edit"),
            path("<int:proxy_id>/instance/", view(self.instance_view), name="fleet_proxy_instance"),
            path("of/<uuid:uid>/", view(self.of_uid_view), name="fleet_proxy_of_uid"),
            path("do/<slug:name>/", view(self.do_view), name="fleet_proxy_do"),
            *super().get_urls(),
        ]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ProxyChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only what the filters use. By default the list can be asked about any column of the row, a letter at a time,
        and so about the cloud-init.
        """
        return lookup == AttributeFilter.parameter_name or lookup.partition("__")[0] in {
            *FILTERED,
            EgressFilter.parameter_name,
        }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Proxy]:
        """Without what is long and never shown."""
        rows: QuerySet[Proxy] = super().get_queryset(request).defer("cloud_init_inline")
        return rows

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {
            verb.name: (_as_action(verb), verb.name, verb.label) for verb in VERBS.values() if self.may(request, verb)
        }

    def may(self, request: HttpRequest, verb: Verb) -> bool:
        return bool(request.user.has_perm(f"fleet.{verb.permission}_proxy"))

    @admin.display(description="Name", ordering="name")
    def full_name(self, proxy: Proxy) -> str:
        return str(proxy)

    @admin.display(description="Phase", ordering="phase")
    def phase_(self, proxy: Proxy) -> SafeString:
        return state_badges(proxy)

    @admin.display(description="Health", ordering="verdict")
    def health(self, proxy: Proxy) -> SafeString:
        return health_badge(proxy)

    @admin.display(description="Provider", ordering="provider", empty_value="external")
    def provider_(self, proxy: Proxy) -> str | None:
        return proxy.provider or None

    @admin.display(description="Address", ordering="address", empty_value=NONE)
    def address_(self, proxy: Proxy) -> str | None:
        return f"{proxy.address}:{proxy.address_port}" if proxy.address else None

    @admin.display(description="Leases")
    def leases(self, proxy: Proxy) -> str:
        return f"{getattr(proxy, ACTIVE_LEASES)} / {proxy.max_leases}"

    @admin.display(description="Last probe", empty_value=NONE)
    def last_probe_(self, proxy: Proxy) -> str | None:
        last: LastProbe | None = getattr(proxy, LAST_PROBE)
        return f"{age(last.at, timezone.now())} ago, {last.milliseconds} ms" if last else None

    @admin.display(description="Age", ordering="-created_at")
    def age(self, proxy: Proxy) -> str:
        return age(proxy.created_at, timezone.now())

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of a proxy, for everyone who may look. Its spec is edited on another."""
        proxy = self.get_object(request, object_id)
        if not self.has_view_or_change_permission(request, proxy):
            raise PermissionDenied
        if proxy is None:
            return gone(request)
        context = {
            **page_of(proxy, timezone.now(), show=request.GET.get("show", ""), before=request.GET.get("before", "")),
            "verbs": [verb for verb in VERBS.values() if self.may(request, verb) and verb.offered(proxy)],
            "has_change_permission": self.has_change_permission(request, proxy),
        }
        return self.render(request, "admin/fleet/proxy_page.html", title=str(proxy), **context)

    def instance_view(self, request: HttpRequest, proxy_id: int) -> HttpResponse:
        """A part of the page, which asks for it by itself: the provider may take its time."""
        proxy = self.get_object(request, str(proxy_id))
        if not self.has_view_or_change_permission(request, proxy):
            raise PermissionDenied
        if proxy is None or not proxy.provider_id:
            raise Http404
        context = {"report": ask(proxy.provider_id), "proxy": proxy, "now": timezone.now()}
        return TemplateResponse(request, "admin/fleet/instance.html", context)

    def of_uid_view(self, request: HttpRequest, uid: UUID) -> HttpResponse:
        """Where links from records lead, which outlive their proxy."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        found = Proxy.objects.filter(uid=uid).values_list("pk", flat=True).first()
        return gone(request) if found is None else HttpResponseRedirect(page_url(found))

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return HttpResponseRedirect(f"{_do_url(VERBS['delete'])}?{urlencode({'ids': object_id})}")

    def do_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Do something to the proxies in ``ids``; what has consequences only once they were shown."""
        verb = VERBS.get(name)
        if verb is None:
            raise Http404
        if not self.may(request, verb):
            raise PermissionDenied
        values = request.POST if request.method == "POST" else request.GET
        ids = [int(part) for part in values.get("ids", "").split(",") if part.isdecimal()]
        back = values.get("next", "")
        if not url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}):
            back = page_url(ids[0]) if len(ids) == 1 else reverse("admin:fleet_proxy_changelist")
        if request.method == "POST" and (verb.consequence is None or "confirmed" in request.POST):
            _tell(request, verb, perform(verb, ids, person(request), timezone.now()))
            return HttpResponseRedirect(back)
        return self.confirm(request, verb, ids, back)

    def confirm(self, request: HttpRequest, verb: Verb, ids: list[int], back: str) -> HttpResponse:
        proxies = list(Proxy.objects.filter(pk__in=ids))
        if not proxies:
            return gone(request)
        active = ports.leases.active_each([proxy.pk for proxy in proxies], timezone.now())
        what = str(proxies[0]) if len(proxies) == 1 else f"{len(proxies)} proxies"
        consequence = verb.consequence or (lambda *_: "")
        context = {
            "verb": verb,
            "question": f"{verb.label} {what}?",
            "rows": [(proxy, consequence(proxy, active.get(proxy.pk, 0))) for proxy in proxies],
            "ids": ",".join(str(proxy.pk) for proxy in proxies),
            "back": back,
            "do_url": _do_url(verb),
        }
        return self.render(request, "admin/fleet/proxy_confirm.html", title=context["question"], **context)


def _as_action(verb: Verb) -> Any:
    """The verb as a bulk action of the list."""

    def action(model_admin: ProxyAdmin, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        ids = list(queryset.values_list("pk", flat=True))
        if verb.consequence is not None:
            return model_admin.confirm(request, verb, ids, back=request.get_full_path())
        _tell(request, verb, perform(verb, ids, person(request), timezone.now()))
        return None

    return action


def _tell(request: HttpRequest, verb: Verb, outcome: Outcome) -> None:
    if outcome.done:
        messages.success(request, f"{verb.done}: {_some(outcome.done, ', ')}.")
    if outcome.refused:
        messages.warning(request, f"Not done: {_some(outcome.refused, '; ')}.")


def _some(names: list[str], separator: str) -> str:
    rest = len(names) - NAMED_AT_MOST
    return separator.join(names[:NAMED_AT_MOST]) + (f" and {rest} more" if rest > 0 else "")


def _do_url(verb: Verb) -> str:
    return reverse("admin:fleet_proxy_do", args=[verb.name])

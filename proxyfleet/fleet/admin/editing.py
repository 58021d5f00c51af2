"""The forms that declare and edit a proxy.

The spec of a proxy of the cluster is edited in its custom resource: the row follows by itself.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from unfold.forms import AdminForm

from proxyfleet.conf import settings
from proxyfleet.fleet import operations
from proxyfleet.fleet.admin.forms import EXTERNAL_ONLY, MANAGED_ONLY, ProxyForm
from proxyfleet.fleet.admin.shared import RenderingAdmin, gone, log_change, page_url, person
from proxyfleet.fleet.backends import providers
from proxyfleet.fleet.models import Origin, Proxy
from proxyfleet.fleet.operations import NotAllowed, OwnedByTheCluster
from proxyfleet.fleet.ports import NotWritten, ports
from proxyfleet.fleet.spec import InvalidSpec, ProxySpec

CHANGED_MEANWHILE = "Somebody changed this proxy meanwhile. Open the form again to see it as it is now."
OF_THE_CLUSTER = (
    "This proxy is declared in the cluster. What is saved here is written to its Proxy object there, and shown here "
    "when the cluster has told of it."
)


class SpecEditing(RenderingAdmin):
    fieldsets: ClassVar[list[tuple[str | None, Any]]] = [
        (None, {"fields": ["namespace", "name", "mode", "generation"]}),
        (
            "Where it runs",
            {
                "fields": [
                    "provider",
                    "zone",
                    "machine_type",
                    "image",
                    "cloud_init",
                    "cloud_init_removed",
                    "endpoint_host",
                    "port",
                ],
                "description": "A Managed proxy whose fields here are changed gets a new instance, at another address.",
            },
        ),
        ("Leasing", {"fields": ["attribute_lines", "max_leases", "drain_seconds"]}),
        (
            "Health check",
            {
                "fields": [
                    "health_url",
                    ("health_interval_seconds", "health_timeout_seconds"),
                    ("failure_threshold", "success_threshold"),
                    "expected_status",
                ]
            },
        ),
    ]
    conditional_fields: ClassVar = {
        **dict.fromkeys(MANAGED_ONLY, "mode != 'External'"),
        **dict.fromkeys(EXTERNAL_ONLY, "mode == 'External'"),
    }

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = ProxyForm(request.POST or None, entries=providers().names())
        if request.method == "POST" and form.is_valid() and (proxy := self._declare(request, form)):
            messages.success(request, f"{proxy} is declared.")
            return HttpResponseRedirect(page_url(proxy.pk))
        return self._render_form(request, form)

    def edit_view(self, request: HttpRequest, proxy_id: int) -> HttpResponse:
        proxy = self.get_object(request, str(proxy_id))
        if not self.has_change_permission(request, proxy):
            raise PermissionDenied
        if proxy is None:
            return gone(request)
        form = ProxyForm(request.POST or None, entries=providers().names(), proxy=proxy)
        if request.method == "POST" and form.is_valid():
            try:
                saved = self._update(request, form, proxy)
            except Proxy.DoesNotExist:
                return gone(request)
            if saved:
                where = " in the cluster" if proxy.origin == Origin.CLUSTER else ""
                messages.success(request, f"{proxy} is saved{where}." if form.changed_data else "Nothing was changed.")
                return HttpResponseRedirect(page_url(proxy_id))
        return self._render_form(request, form, proxy)

    def _declare(self, request: HttpRequest, form: ProxyForm) -> Proxy | None:
        try:
            with transaction.atomic():
                proxy = operations.declare(
                    form.cleaned_data["namespace"],
                    form.cleaned_data["name"],
                    form.declared(),
                    actor=person(request).get_username(),
                    now=timezone.now(),
                )
                log_change(request, proxy, ADDITION, "Declared.")
        except InvalidSpec as error:
            form.add_spec_errors(error)
            return None
        return proxy

    def _update(self, request: HttpRequest, form: ProxyForm, proxy: Proxy) -> bool:
        """Raises Proxy.DoesNotExist."""
        write = self._write_through if proxy.origin == Origin.CLUSTER else self._write
        try:
            return write(request, form, proxy)
        except InvalidSpec as error:
            form.add_spec_errors(error)
        except NotWritten as error:
            form.add_error(None, str(error))
        except NotAllowed as error:
            form.add_error(None, f"{error}: its spec can't be changed any more.")
        return False

    def _write(self, request: HttpRequest, form: ProxyForm, proxy: Proxy) -> bool:
        with transaction.atomic():
            # Holds the row from the comparison to the write: two people who edit one proxy don't undo each other.
            current = Proxy.objects.select_for_update().only("generation").get(pk=proxy.pk)
            if current.generation != form.cleaned_data["generation"]:
                form.add_error(None, CHANGED_MEANWHILE)
                return False
            operations.update(proxy.pk, form.declared(), actor=person(request).get_username(), now=timezone.now())
            _log_changes(request, form, proxy)
        return True

    def _write_through(self, request: HttpRequest, form: ProxyForm, proxy: Proxy) -> bool:
        if proxy.generation != form.cleaned_data["generation"]:
            form.add_error(None, CHANGED_MEANWHILE)
            return False
        ports.cluster.apply_spec(proxy, ProxySpec.parse(form.declared()))
        _log_changes(request, form, proxy)
        return True

    def _fieldsets_of(self, form: ProxyForm) -> list[Any]:
        """Those whose fields this form has."""
        return [(title, {**options, "fields": _shown(options["fields"], form)}) for title, options in self.fieldsets]

    def _render_form(self, request: HttpRequest, form: ProxyForm, proxy: Proxy | None = None) -> HttpResponse:
        context = {
            "adminform": AdminForm(form, self._fieldsets_of(form), {}, model_admin=self),
            "errors": form.errors,
            "media": self.media + form.media,
            "cancel_url": page_url(proxy.pk) if proxy else reverse("admin:fleet_proxy_changelist"),
            "heading": f"Edit {proxy}" if proxy else "Declare a proxy",
            "note": _note(proxy),
            "save_label": "Save" if proxy else "Declare",
        }
        return self.render(request, "admin/fleet/proxy_form.html", title=context["heading"], **context)


def _shown(names: list[Any], form: ProxyForm) -> list[Any]:
    return [name for name in names if isinstance(name, tuple) or name in form.fields]


def _note(proxy: Proxy | None) -> str:
    if proxy is None or proxy.origin != Origin.CLUSTER:
        return ""
    return OF_THE_CLUSTER if settings().cluster_sync else f"It can't be changed here now: {OwnedByTheCluster(proxy)}."


def _log_changes(request: HttpRequest, form: ProxyForm, proxy: Proxy) -> None:
    if labels := form.changed_labels():
        log_change(request, proxy, CHANGE, f"Changed {', '.join(labels)}.")

"""Leases, cooldowns, reports and API tokens, as an operator sees them. What the product writes, nobody edits."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, TypeAlias

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from unfold.admin import ModelAdmin
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from leasing import access, operations
from leasing.models import ApiToken, Cooldown, EndCause, EndedLease, Lease, Report
from leasing.tokens import NewToken, Scope

BulkAction: TypeAlias = Callable[[Any, HttpRequest, Any], HttpResponse | None]


class RecordAdmin(ModelAdmin):
    """Rows that the product writes: to be looked at, and changed by actions only."""

    actions_need: ClassVar[str] = ""
    """Permission that the actions of this page ask for."""
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_act_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(self.actions_need))

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only what the filters use: by default the list can be asked about any column, a letter at a time."""
        filters = {entry if isinstance(entry, str) else entry[0] for entry in self.list_filter}
        return lookup.partition("__")[0] in filters


def asks_first(verb: str, consequence: str) -> Callable[[BulkAction], BulkAction]:
    """The action runs only after a page that says what will happen."""

    def decorate(run: BulkAction) -> BulkAction:
        @wraps(run)
        def confirmed(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
            if "confirmed" in request.POST:
                return run(model_admin, request, queryset)
            count = queryset.count()
            name = model_admin.opts.verbose_name if count == 1 else model_admin.opts.verbose_name_plural
            context = {
                **model_admin.admin_site.each_context(request),
                "opts": model_admin.opts,
                "title": f"{verb} {count} {name}?",
                "verb": verb,
                "consequence": consequence,
                "action": request.POST["action"],
                "objects": queryset,
                "back": request.get_full_path(),
            }
            return TemplateResponse(request, "admin/leasing/confirm.html", context)

        return confirmed

    return decorate


@admin.register(Lease)
class LeaseAdmin(RecordAdmin):
    actions_need = "leasing.change_lease"
    list_display: ClassVar = ["proxy", "owner", "client", "target", "created_at", "expires_at", "id"]
    list_select_related: ClassVar = ["proxy"]
    list_filter: ClassVar = [("owner", admin.AllValuesFieldListFilter)]
    search_fields: ClassVar = ["proxy__name", "client", "target"]
    search_help_text = "Name of the proxy, client or target"
    fields: ClassVar = ["id", "proxy", "owner", "client", "target", "created_at", "expires_at"]
    actions: ClassVar = ["release"]

    @action(description="Release", permissions=["act"])
    @asks_first(
        "Release", "Whoever holds them is not asked: their next renewal or report is told that the lease ended."
    )
    def release(self, request: HttpRequest, queryset: QuerySet[Lease]) -> None:
        leases = list(queryset)
        for lease in leases:
            operations.release(lease.pk, now=timezone.now(), cause=EndCause.RELEASED_BY_OPERATOR)
            self.log_change(request, lease, "Released.")
        messages.success(request, f"Released: {len(leases)}.")


@admin.register(EndedLease)
class EndedLeaseAdmin(RecordAdmin):
    list_display: ClassVar = ["proxy_", "owner", "client", "target", "created_at", "ended_at", "cause", "id"]
    list_filter: ClassVar = ["cause"]
    search_fields: ClassVar = ["name", "client", "target"]
    search_help_text = "Name of the proxy, client or target"
    fields: ClassVar = ["id", "proxy_", "owner", "client", "target", "created_at", "ended_at", "cause"]

    @display(description="Proxy")
    def proxy_(self, lease: EndedLease) -> str:
        return f"{lease.namespace}/{lease.name}"


@admin.register(Cooldown)
class CooldownAdmin(RecordAdmin):
    actions_need = "leasing.change_cooldown"
    list_display: ClassVar = ["target", "proxy", "until", "state"]
    list_display_links = None
    list_select_related: ClassVar = ["proxy"]
    search_fields: ClassVar = ["target", "proxy__name"]
    search_help_text = "Target or name of the proxy"
    actions: ClassVar = ["lift"]

    @display(description="State", label={"cooling": "info", "over": "default"})
    def state(self, cooldown: Cooldown) -> str:
        return "cooling" if cooldown.until > timezone.now() else "over"

    @action(description="Lift", permissions=["act"])
    def lift(self, request: HttpRequest, queryset: QuerySet[Cooldown]) -> None:
        cooldowns = list(queryset)
        for cooldown in cooldowns:
            operations.lift_cooldown(cooldown.pk)
            self.log_change(request, cooldown, "Lifted.")
        messages.success(request, f"Lifted: {len(cooldowns)}. The proxies are leased for these targets again.")


@admin.register(Report)
class ReportAdmin(RecordAdmin):
    list_display: ClassVar = ["at", "target", "result_", "proxy_", "lease_id"]
    list_display_links = None
    list_filter: ClassVar = ["result"]
    search_fields: ClassVar = ["target", "name"]
    search_help_text = "Target or name of the proxy"

    @display(
        description="Result",
        label={
            "ok": "success",
            "rate limited": "warning",
            "blocked": "danger",
            "timeout": "warning",
            "error": "danger",
        },
    )
    def result_(self, report: Report) -> str:
        return report.get_result_display().lower()

    @display(description="Proxy")
    def proxy_(self, report: Report) -> str:
        return f"{report.namespace}/{report.name}"


class ApiTokenForm(forms.ModelForm):  # type: ignore[type-arg]  # takes none at run time
    scopes = forms.MultipleChoiceField(
        choices=[
            (Scope.READ.value, "read: see proxies and targets"),
            (Scope.LEASE.value, "lease: lease proxies and report on them"),
            (Scope.OPERATE.value, "operate: declare and delete proxies"),
        ],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
    )


@admin.register(ApiToken)
class ApiTokenAdmin(RecordAdmin):
    form = ApiTokenForm
    actions_need = "leasing.change_apitoken"
    list_display: ClassVar = ["name", "begins", "scopes_", "state", "expires_at", "last_used_at", "created_by"]
    search_fields: ClassVar = ["name"]
    fields: ClassVar = [
        "name",
        "begins",
        "scopes_",
        "state",
        "expires_at",
        "requests_per_second",
        "last_used_at",
        "created_by",
        "created_at",
        "revoked_at",
    ]
    actions: ClassVar = ["revoke"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("leasing.add_apitoken"))

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> list[str]:
        return list(self.fields) if obj else ["name", "scopes", "expires_at", "requests_per_second"]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "GET" and access.is_open():
            messages.warning(request, "The API is open: until a token is made here, it answers anyone who reaches it.")
        response: HttpResponse = super().changelist_view(request, extra_context)
        return response

    def save_model(self, request: HttpRequest, obj: ApiToken, form: Any, change: bool) -> None:
        new = NewToken.generate()
        obj.created_at, obj.created_by = timezone.now(), request.user.get_username()
        access.issue(obj, new)
        request.new_token = new  # type: ignore[attr-defined]  # for response_add, which ends this same request

    def response_add(self, request: HttpRequest, obj: ApiToken, post_url_continue: str | None = None) -> HttpResponse:
        """The only page that ever shows the token. Not a redirect: it would have to be kept for the next request."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"The token '{obj.name}' is made",
            "secret": request.new_token.secret,  # type: ignore[attr-defined]  # set by save_model
            "back": reverse("admin:leasing_apitoken_changelist"),
        }
        return TemplateResponse(request, "admin/leasing/token_created.html", context)

    @action(description="Revoke", permissions=["act"])
    @asks_first("Revoke", "Requests with them are refused from then on. This can't be taken back.")
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        tokens = list(queryset)
        for token in tokens:
            access.revoke_token(token.pk, now=timezone.now())
            self.log_change(request, token, "Revoked.")
        messages.success(request, f"Revoked: {', '.join(token.name for token in tokens)}.")

    @display(description="Begins with", empty_value="—")
    def begins(self, token: ApiToken) -> str | None:
        return f"{token.prefix}…" if token.prefix else None

    @display(description="Scopes")
    def scopes_(self, token: ApiToken) -> str:
        return ", ".join(token.scopes)

    @display(description="State", label={"good": "success", "expired": "warning", "revoked": "danger"})
    def state(self, token: ApiToken) -> str:
        if token.revoked_at is not None:
            return "revoked"
        if token.expires_at is not None and token.expires_at <= timezone.now():
            return "expired"
        return "good"

"""API tokens: made here, shown once, revoked."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from leasing import access
from leasing.admin.shared import asks_first
from leasing.models import ApiToken
from leasing.tokens import NewToken, Scope
from proxyfleet.conf import settings
from proxyfleet.fleet.admin.records import RecordAdmin
from proxyfleet.fleet.templatetags.ages import age


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
    list_display: ClassVar = ["name", "begins", "scopes_", "state", "expires", "last_used", "limit", "created_by"]
    search_fields: ClassVar = ["name"]
    search_help_text = "Name"
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

    @display(description="Expires")
    def expires(self, token: ApiToken) -> str:
        return _when(token.expires_at)

    @display(description="Last used")
    def last_used(self, token: ApiToken) -> str:
        return _when(token.last_used_at)

    @display(description="Requests a second")
    def limit(self, token: ApiToken) -> str:
        """Its own limit, or that of the settings."""
        if token.requests_per_second is not None:
            return str(token.requests_per_second)
        return f"{settings().token_rate_limit} (setting)" if settings().token_rate_limit else "no limit"

    @display(description="State", label={"good": "success", "expired": "warning", "revoked": "danger"})
    def state(self, token: ApiToken) -> str:
        if token.revoked_at is not None:
            return "revoked"
        if token.expires_at is not None and token.expires_at <= timezone.now():
            return "expired"
        return "good"


def _when(moment: datetime | None) -> str:
    if moment is None:
        return "never"
    now = timezone.now()
    return f"in {age(moment, now)}" if moment > now else f"{age(moment, now)} ago"

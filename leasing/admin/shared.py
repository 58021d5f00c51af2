"""What these pages share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

BulkAction: TypeAlias = Callable[[Any, HttpRequest, Any], HttpResponse | None]

RESULT_COLOURS = {
    "ok": "success",
    "rate limited": "warning",
    "blocked": "danger",
    "timeout": "warning",
    "error": "danger",
}


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
                "objects": [(obj.pk, model_admin.describe(obj)) for obj in queryset],
                "back": request.get_full_path(),
            }
            return TemplateResponse(request, "admin/leasing/confirm.html", context)

        return confirmed

    return decorate


def proxy_link(uid: UUID, name: str) -> SafeString:
    """To the page of a proxy that may be gone by now."""
    return format_html('<a class="fleet-link" href="{}">{}</a>', reverse("admin:fleet_proxy_of_uid", args=[uid]), name)


def target_link(target: str) -> SafeString | str:
    if not target:
        return ""
    return format_html(
        '<a class="fleet-link" href="{}">{}</a>', reverse("admin:leasing_target_page", args=[target]), target
    )

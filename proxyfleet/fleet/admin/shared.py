"""What the views of proxies share."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.admin import ModelAdmin

from proxyfleet.fleet.models import Proxy


class RenderingAdmin(ModelAdmin):
    def render(self, request: HttpRequest, template: str, **context: Any) -> HttpResponse:
        request.current_app = self.admin_site.name
        site = self.admin_site.each_context(request)
        return TemplateResponse(request, template, {**site, "opts": self.opts, **context})


def log_change(request: HttpRequest, proxy: Proxy, flag: int, message: str) -> None:
    LogEntry.objects.log_actions(
        user_id=person(request).pk, queryset=[proxy], action_flag=flag, change_message=message, single_object=True
    )


def person(request: HttpRequest) -> User:
    assert isinstance(request.user, User), "the admin lets nobody else in"
    return request.user


def gone(request: HttpRequest) -> HttpResponse:
    messages.warning(request, "This proxy is gone by now.")
    return HttpResponseRedirect(reverse("admin:fleet_proxy_changelist"))


def page_url(proxy_id: int) -> str:
    return reverse("admin:fleet_proxy_change", args=[proxy_id])

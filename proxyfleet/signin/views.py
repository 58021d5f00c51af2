"""The admin's sign-in; for who failed too often, a page that says for how long."""

from __future__ import annotations

import math
from http import HTTPStatus

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.utils import timezone

from proxyfleet.signin.forms import ThrottledForm


def sign_in(request: HttpRequest) -> HttpResponse:
    response = admin.site.login(request)
    form = (
        response.context_data.get("form") if isinstance(response, TemplateResponse) and response.context_data else None
    )
    if not isinstance(form, ThrottledForm) or form.locked_until is None:
        return response
    seconds = max(1, math.ceil((form.locked_until - timezone.now()).total_seconds()))
    context = {
        **admin.site.each_context(request),
        "title": "Too many failed tries",
        "minutes": math.ceil(seconds / 60),
        "until": form.locked_until,
        "again": request.get_full_path(),
    }
    refusal = render(request, "admin/locked_out.html", context, status=HTTPStatus.TOO_MANY_REQUESTS)
    refusal.headers["Retry-After"] = str(seconds)
    return refusal

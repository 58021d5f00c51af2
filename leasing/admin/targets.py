"""Targets: which sites turn which proxies away. They have no table of their own: cooldowns and reports name them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from leasing import blocking
from leasing.admin.shared import RESULT_COLOURS, proxy_link, target_link
from leasing.blocking import Trouble
from leasing.models import Result
from leasing.queries import TARGET_WINDOW
from proxyfleet.fleet.admin.badges import badge
from proxyfleet.fleet.admin.records import RecordAdmin
from proxyfleet.fleet.templatetags.ages import age

PER_PAGE = 50
SHOWN_PROXIES = 100
SHOWN_REPORTS = 50


class TargetPages(RecordAdmin):
    """The list of targets and the page of one, beside the cooldowns."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("targets/", view(self.targets_view), name="leasing_target_list"),
            path("targets/<path:target>/", view(self.target_view), name="leasing_target_page"),
            *super().get_urls(),
        ]

    def targets_view(self, request: HttpRequest) -> HttpResponse:
        self._require(request)
        part = _storable(request.GET.get("q", "")).strip().lower()
        found = blocking.trouble(timezone.now(), part=part, after=_after(request), limit=PER_PAGE + 1)
        shown = found[:PER_PAGE]
        more = len(found) > PER_PAGE
        return self._render(
            request,
            "admin/leasing/targets.html",
            title="Targets",
            part=part,
            table={
                "headers": ["Target", "Resting proxies", "Success", "Refused", "Reports"],
                "rows": [[target_link(one.target), one.cooling, _rate(one), one.refused, one.reports] for one in shown],
            },
            more_url=_more_url(part, shown[-1]) if more else "",
            is_first_page="after" not in request.GET,
            window=age(timezone.now(), timezone.now() + TARGET_WINDOW),
        )

    def target_view(self, request: HttpRequest, target: str) -> HttpResponse:
        self._require(request)
        if target != _storable(target):
            raise Http404
        now = timezone.now()
        counts = blocking.results(target, now)
        total = sum(counts.values())
        resting = blocking.resting(target, now, limit=SHOWN_PROXIES)
        return self._render(
            request,
            "admin/leasing/target.html",
            title=f"Target {target}",
            target=target,
            facts=[
                ("Success", _percent(counts.get(Result.OK, 0), total)),
                ("Reports", total),
                *((result.label.capitalize(), counts[result]) for result in Result if counts.get(result)),
            ],
            window=age(now, now + TARGET_WINDOW),
            resting={
                "headers": ["Proxy", "Free again in", "Provider"],
                "rows": [
                    [
                        proxy_link(cooldown.proxy.uid, str(cooldown.proxy)),
                        age(cooldown.until, now),
                        cooldown.proxy.provider or "external",
                    ]
                    for cooldown in resting
                ],
            },
            resting_are_all=len(resting) < SHOWN_PROXIES,
            reports={
                "headers": ["When", "Result", "Proxy"],
                "rows": [
                    [
                        f"{age(report.at, now)} ago",
                        badge(report.get_result_display(), RESULT_COLOURS[report.get_result_display().lower()]),
                        proxy_link(report.proxy_uid, f"{report.namespace}/{report.name}"),
                    ]
                    for report in blocking.reports(target, limit=SHOWN_REPORTS)
                ],
            },
            cooldowns_url=_list_url("cooldown", target),
            reports_url=_list_url("report", target),
        )

    def _require(self, request: HttpRequest) -> None:
        if not request.user.has_perms(["leasing.view_cooldown", "leasing.view_report"]):
            raise PermissionDenied

    def _render(self, request: HttpRequest, template: str, **context: Any) -> HttpResponse:
        request.current_app = self.admin_site.name
        return TemplateResponse(request, template, {**self.admin_site.each_context(request), **context})


def _storable(text: str) -> str:
    """PostgreSQL knows no NUL within a text."""
    return text.replace("\0", "")


def _rate(one: Trouble) -> str:
    return _percent(one.succeeded, one.reports)


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "—"


def _list_url(model: str, target: str) -> str:
    return f"{reverse(f'admin:leasing_{model}_changelist')}?{urlencode({'target': target})}"


def _more_url(part: str, last: Trouble) -> str:
    place = {"after": last.target, "cooling": last.cooling, "reports": last.reports}
    return "?" + urlencode({"q": part, **place} if part else place)


def _after(request: HttpRequest) -> Trouble | None:
    """Where the page before ended."""
    target = _storable(request.GET["after"]) if "after" in request.GET else None
    numbers = [request.GET.get(name, "") for name in ("cooling", "reports")]
    if target is None or not all(number.isdecimal() and len(number) < 10 for number in numbers):
        return None
    cooling, reports = map(int, numbers)
    return Trouble(target, cooling, reports, succeeded=0, refused=0)

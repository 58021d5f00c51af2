"""What lessees said of their requests."""

from __future__ import annotations

from typing import ClassVar

from django.contrib import admin
from django.utils.safestring import SafeString
from unfold.decorators import display

from leasing.admin.shared import RESULT_COLOURS, proxy_link, target_link
from leasing.models import Report
from proxyfleet.fleet.admin.records import RecordAdmin


@admin.register(Report)
class ReportAdmin(RecordAdmin):
    list_display: ClassVar = ["at_", "result_", "target_", "proxy_", "lease_id"]
    list_display_links = None
    list_filter: ClassVar = ["result"]
    search_fields: ClassVar = ["target__contains", "name__contains"]
    search_help_text = "Target or proxy"
    exact_lookups = ("target",)
    fields: ClassVar = ["at_", "result_", "target_", "proxy_", "lease_id"]

    @display(description="Time")
    def at_(self, report: Report) -> str:
        return f"{report.at:%Y-%m-%d %H:%M:%S} UTC"

    @display(description="Result", label=RESULT_COLOURS)
    def result_(self, report: Report) -> str:
        return report.get_result_display().lower()

    @display(description="Target")
    def target_(self, report: Report) -> SafeString | str:
        return target_link(report.target)

    @display(description="Proxy")
    def proxy_(self, report: Report) -> SafeString:
        return proxy_link(report.proxy_uid, f"{report.namespace}/{report.name}")

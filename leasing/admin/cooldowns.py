"""Cooldowns, and the targets that are the reason for them."""

from __future__ import annotations

from typing import ClassVar

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from leasing import operations
from leasing.admin.shared import proxy_link, target_link
from leasing.admin.targets import TargetPages
from leasing.models import Cooldown
from proxyfleet.fleet.templatetags.ages import age


@admin.register(Cooldown)
class CooldownAdmin(TargetPages):
    actions_need = "leasing.change_cooldown"
    list_display: ClassVar = ["target_", "proxy_", "until_", "state"]
    list_display_links = None
    list_select_related: ClassVar = ["proxy"]
    search_fields: ClassVar = ["target__contains", "proxy__name__contains"]
    search_help_text = "Target or proxy"
    exact_lookups = ("target",)
    fields: ClassVar = ["target_", "proxy_", "until", "state"]
    actions: ClassVar = ["lift"]

    @display(description="Target")
    def target_(self, cooldown: Cooldown) -> SafeString | str:
        return target_link(cooldown.target)

    @display(description="Proxy")
    def proxy_(self, cooldown: Cooldown) -> SafeString:
        return proxy_link(cooldown.proxy.uid, str(cooldown.proxy))

    @display(description="Until")
    def until_(self, cooldown: Cooldown) -> str:
        now = timezone.now()
        return f"in {age(cooldown.until, now)}" if cooldown.until > now else f"{age(cooldown.until, now)} ago"

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

"""Leases that are out, and those that are over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from leasing import operations
from leasing.admin.shared import asks_first, proxy_link, target_link
from leasing.models import ApiToken, EndCause, EndedLease, Lease
from proxyfleet.fleet.admin.records import RecordAdmin
from proxyfleet.fleet.templatetags.ages import age


class OwnerFilter(admin.SimpleListFilter):
    """By the token that took the lease: asking the leases themselves for all owners would read every one."""

    title = "token"
    parameter_name = "owner"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        names = ApiToken.objects.order_by("name").values_list("name", flat=True)
        return [(name, name) for name in names]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(owner=self.value()) if self.value() else queryset


@admin.register(Lease)
class LeaseAdmin(RecordAdmin):
    actions_need = "leasing.change_lease"
    list_display: ClassVar = ["id_", "proxy_", "target_", "client", "owner_", "taken", "expires"]
    list_display_links = ("id_",)
    list_select_related: ClassVar = ["proxy"]
    list_filter: ClassVar = [OwnerFilter]
    search_fields: ClassVar = ["proxy__name__contains", "client", "target__contains"]
    search_help_text = "Proxy, client or target"
    empty_value_display = "—"
    fields: ClassVar = ["id", "proxy_", "owner_", "client", "target_", "created_at", "expires_at"]
    actions: ClassVar = ["release"]

    def describe(self, lease: Lease) -> str:
        for_target = f" for {lease.target}" if lease.target else ""
        return f"{lease.client or lease.owner or 'anonymous'} on {lease.proxy}{for_target}"

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

    @display(description="Lease")
    def id_(self, lease: Lease) -> str:
        return _short(lease)

    @display(description="Proxy")
    def proxy_(self, lease: Lease) -> SafeString:
        return proxy_link(lease.proxy.uid, str(lease.proxy))

    @display(description="Target")
    def target_(self, lease: Lease) -> SafeString | str:
        return target_link(lease.target)

    @display(description="Token")
    def owner_(self, lease: Lease) -> str:
        return lease.owner

    @display(description="Taken")
    def taken(self, lease: Lease) -> str:
        return f"{age(lease.created_at, timezone.now())} ago"

    @display(description="Expires")
    def expires(self, lease: Lease) -> str:
        now = timezone.now()
        return f"in {age(lease.expires_at, now)}" if lease.expires_at > now else "expired"


@admin.register(EndedLease)
class EndedLeaseAdmin(RecordAdmin):
    list_display: ClassVar = ["id_", "proxy_", "target_", "client", "owner_", "ended", "held", "cause"]
    list_display_links = ("id_",)
    list_filter: ClassVar = ["cause"]
    search_fields: ClassVar = ["name__contains", "client", "target__contains"]
    search_help_text = "Proxy, client or target"
    empty_value_display = "—"
    fields: ClassVar = ["id", "proxy_", "owner_", "client", "target_", "created_at", "ended_at", "cause"]

    @display(description="Lease")
    def id_(self, lease: EndedLease) -> str:
        return _short(lease)

    @display(description="Proxy")
    def proxy_(self, lease: EndedLease) -> SafeString:
        return proxy_link(lease.proxy_uid, f"{lease.namespace}/{lease.name}")

    @display(description="Target")
    def target_(self, lease: EndedLease) -> SafeString | str:
        return target_link(lease.target)

    @display(description="Token")
    def owner_(self, lease: EndedLease) -> str:
        return lease.owner

    @display(description="Ended")
    def ended(self, lease: EndedLease) -> str:
        return f"{age(lease.ended_at, timezone.now())} ago"

    @display(description="Held for")
    def held(self, lease: EndedLease) -> str:
        return age(lease.created_at, lease.ended_at)


def _short(lease: Lease | EndedLease) -> str:
    """The random end: the beginning of such an id is its time."""
    return f"…{str(lease.pk)[-8:]}"

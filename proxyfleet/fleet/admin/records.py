"""Rows that the product writes: to be looked at, and changed by actions only."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from proxyfleet.fleet.admin.keyset import WINDOW, KeysetChangeList


class RecordAdmin(ModelAdmin):
    actions_need: ClassVar[str] = ""
    """Permission that the actions of this page ask for."""
    exact_lookups: ClassVar[tuple[str, ...]] = ()
    """Columns that links may ask for by value, each with an index that ends in the key."""
    deep_search: ClassVar[bool] = False
    """An index answers every search and every filter."""
    list_per_page = 50
    list_filter_sheet = True
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    list_before_template = "admin/fleet/keyset_before.html"
    window = WINDOW

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def describe(self, record: Any) -> str:
        """For a question before an action."""
        return str(record)

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
        if lookup in self.exact_lookups:
            return True
        names = {getattr(entry, "parameter_name", entry) if callable(entry) else entry for entry in self.list_filter}
        filters = {name if isinstance(name, str) else name[0] for name in names}
        return lookup.partition("__")[0] in filters

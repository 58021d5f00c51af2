"""Filters of lists that Django has no ready-made ones for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.admin import AllValuesFieldListFilter, ListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest


class ProviderFilter(AllValuesFieldListFilter):
    """An External proxy has none: its choice needs a name too."""

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield {**choice, "display": choice["display"] or "external"}


class AttributeFilter(ListFilter):
    """``geo=eu`` or just ``geo``; several, separated by commas, must all be there."""

    title = "attribute"
    template = "admin/fleet/attribute_filter.html"
    parameter_name = "attribute"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        values = params.pop(self.parameter_name, [""])
        value = values[-1].replace("\0", "").strip()  # which PostgreSQL does not know
        self.used_parameters = {self.parameter_name: value} if value else {}

    @property
    def value(self) -> str:
        return str(self.used_parameters.get(self.parameter_name, ""))

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [self.parameter_name]

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        """What the form sends along, and how to be rid of the filter."""
        others = changelist.filter_params.items()
        yield {
            "value": self.value,
            "others": [(name, value) for name, values in others if name != self.parameter_name for value in values],
            "remove": changelist.get_query_string(remove=[self.parameter_name]),
        }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        for part in filter(None, map(str.strip, self.value.split(","))):
            key, equals, text = (piece.strip() for piece in part.partition("="))
            queryset = queryset.filter(
                **({"attributes__contains": {key: text}} if equals else {"attributes__has_key": key})
            )
        return queryset

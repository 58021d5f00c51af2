"""Which targets block whom."""

from __future__ import annotations

from typing import ClassVar

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from leasing import queries
from leasing.api.answers import TargetPage, TargetSummary
from leasing.api.base import View, answer, parse_query
from leasing.api.openapi import call
from leasing.api.pages import next_url, read_cursor
from leasing.api.requests import TargetQuery
from leasing.tokens import Scope


class Targets(View):
    scopes: ClassVar = {"GET": Scope.READ}
    reads_query = True

    @call("listTargets", query=TargetQuery, answers={200: TargetPage})
    def get(self, request: HttpRequest) -> HttpResponse:
        """Targets with cooldowns now or reports in the last hour, in the order of their names."""
        query = parse_query(request, TargetQuery)
        (after,) = read_cursor(request, query.cursor) if query.cursor else ("",)
        found = queries.targets(timezone.now(), after=after, limit=query.limit + 1)
        shown = found[: query.limit]
        following = next_url(request, [shown[-1].target]) if len(found) > query.limit else None
        return answer(TargetPage(items=[TargetSummary.model_validate(target) for target in shown], next=following))

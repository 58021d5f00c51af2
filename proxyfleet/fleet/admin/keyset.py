"""Pages of tables that grow without end, by the primary key: no count, no offset, and a bound on what one page reads.

The keys of these tables grow with time, so the newest rows are the last. Where only some rows are asked for, one
request looks through ``WINDOW`` rows at most and says how far it came: the page after it goes on from there. Where an
index answers the question (``deep``), the rest of the table is asked as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.views import ChangeList

BEFORE, AFTER = "before", "after"
"""Parameters: the page of the rows older, or newer, than this key."""

WINDOW = 50_000


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Any]
    """Newest first."""
    newer: Any = None
    """Key for ``AFTER``, when there may be newer rows."""
    older: Any = None
    """Key for ``BEFORE``, when there may be older rows."""
    is_unfinished: bool = False
    """The window ended before the page was full: there may be more further on."""


def older_page(rows: QuerySet[Any], before: Any, *, size: int, narrowed: bool, deep: bool) -> Page:
    """The rows before ``before``, or the newest; ``narrowed`` when they are not all rows of the table."""
    below = rows if before is None else rows.filter(pk__lt=before)
    floor = _edge(rows.model, before, newest_first=True) if narrowed else None
    found = list((below if floor is None else below.filter(pk__gte=floor)).order_by("-pk")[: size + 1])
    if floor is not None and len(found) <= size and deep:
        found += _all_hits(below.filter(pk__lt=floor), newest_first=True, limit=size + 1 - len(found))
        floor = None
    shown = found[:size]
    newer = shown[0].pk if before is not None and shown else None
    if len(found) > size:
        return Page(shown, newer, shown[-1].pk)
    return Page(shown, newer, floor, is_unfinished=floor is not None)


def newer_page(rows: QuerySet[Any], after: Any, *, size: int, narrowed: bool, deep: bool) -> Page:
    """The rows next after ``after``; the newest page when that is where they end."""
    above = rows.filter(pk__gt=after)
    ceiling = _edge(rows.model, after, newest_first=False) if narrowed else None
    found = list((above if ceiling is None else above.filter(pk__lte=ceiling)).order_by("pk")[: size + 1])
    if ceiling is not None and len(found) <= size and deep:
        found += _all_hits(above.filter(pk__gt=ceiling), newest_first=False, limit=size + 1 - len(found))
        ceiling = None
    if len(found) <= size and ceiling is None:
        return older_page(rows, None, size=size, narrowed=narrowed, deep=deep)
    shown = found[:size][::-1]
    if len(found) > size:
        return Page(shown, shown[0].pk, shown[-1].pk)
    return Page(shown, ceiling, shown[-1].pk if shown else None, is_unfinished=True)


def _edge(model: type[Model], start: Any, *, newest_first: bool) -> Any:
    """The last key that a window from ``start`` on reaches; None when it reaches the end of the table."""
    beyond, order = ("<", "DESC") if newest_first else (">", "ASC")
    back = "ASC" if newest_first else "DESC"
    table, key = connection.ops.quote_name(model._meta.db_table), connection.ops.quote_name(_key(model))
    begin = "" if start is None else f"WHERE {key} {beyond} %(start)s"
    query = f"""
        SELECT edge FROM (
            SELECT {key} AS edge FROM (SELECT {key} FROM {table} {begin} ORDER BY {key} {order} LIMIT {WINDOW}) seen
            ORDER BY {key} {back} LIMIT 1
        ) last WHERE EXISTS (SELECT FROM {table} WHERE {key} {beyond} edge)
    """  # noqa: S608  names of Django's, and a number
    with connection.cursor() as cursor:
        cursor.execute(query, {"start": start})
        row = cursor.fetchone()
    return row[0] if row else None


def _all_hits(rows: QuerySet[Any], *, newest_first: bool, limit: int) -> list[Any]:
    """The first of ``rows``, which are few, found by their index: in order of the key, each row would be looked at."""
    sql, params = rows.order_by().values("pk").query.sql_with_params()
    order = "DESC" if newest_first else "ASC"
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH hits (key) AS MATERIALIZED ({sql}) SELECT key FROM hits ORDER BY key {order} LIMIT {limit}",  # noqa: S608
            params,
        )
        keys = [value for (value,) in cursor.fetchall()]
    return list(rows.filter(pk__in=keys).order_by("-pk" if newest_first else "pk")) if keys else []


def _key(model: type[Model]) -> str:
    assert model._meta.pk is not None
    return str(model._meta.pk.column)


class KeysetPaginator(Paginator):  # type: ignore[type-arg]  # generic in the stubs only
    """Names the template; what it shows is the change list's."""

    template_name = "admin/fleet/keyset_pagination.html"


class KeysetChangeList(ChangeList):
    """The list of a `RecordAdmin`."""

    page: Page

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        self._cursor = {name: request.GET[name] for name in (BEFORE, AFTER) if name in request.GET}
        super().__init__(request, *args, **kwargs)

    def get_filters_params(self, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        # Another filter or search begins at the newest row again, so no link takes the place in the list along.
        for name in (BEFORE, AFTER):
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        found: dict[str, Any] = super().get_filters_params(params)
        return found

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str]:
        return ["-pk"]

    def get_results(self, request: HttpRequest) -> None:
        exact = set(self.get_filters_params()) <= set(self.model_admin.exact_lookups)
        narrowed = bool(self.query) or not exact
        options = {"size": self.list_per_page, "narrowed": narrowed, "deep": self.model_admin.deep_search}
        if AFTER in self._cursor:
            self.page = newer_page(self.queryset, self._parse(AFTER), **options)
        else:
            self.page = older_page(self.queryset, self._parse(BEFORE), **options)
        self.result_list = self.page.rows
        # Alike, so that no template says how many of how many there are.
        self.result_count = self.full_result_count = len(self.page.rows)
        self.show_full_result_count = False
        self.can_show_all, self.multi_page = False, True
        self.paginator = KeysetPaginator(self.page.rows, self.list_per_page)

    def _parse(self, name: str) -> Any:
        if name not in self._cursor:
            return None
        try:
            return self.lookup_opts.pk.to_python(self._cursor[name])
        except ValidationError as error:
            raise IncorrectLookupParameters from error

    @property
    def exact_question(self) -> str:
        """What a link asked for by value, in words."""
        exact = [name for name in self.model_admin.exact_lookups if name in self.params]
        return ", ".join(f"{self.lookup_opts.get_field(name).verbose_name} {self.params[name]}" for name in exact)

    @property
    def newest_url(self) -> str | None:
        return str(self.get_query_string()) if self._cursor else None

    @property
    def newer_url(self) -> str | None:
        return str(self.get_query_string({AFTER: self.page.newer})) if self.page.newer is not None else None

    @property
    def older_url(self) -> str | None:
        return str(self.get_query_string({BEFORE: self.page.older})) if self.page.older is not None else None

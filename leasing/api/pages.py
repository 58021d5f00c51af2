"""Pages by keyset: as quick at the end of a long list as at its beginning, and sound while the list changes."""

from __future__ import annotations

from typing import Any

from django.core import signing
from django.db.models import BooleanField, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest

from leasing.errors import InvalidRequest
from proxyfleet.fleet.models import Proxy


def next_url(request: HttpRequest, last: list[Any]) -> str:
    """The URL of this request, to go on after the item whose key is ``last``."""
    params = request.GET.copy()
    params["cursor"] = signing.dumps(last, salt=_salt(request))
    return request.build_absolute_uri(f"?{params.urlencode()}")


def read_cursor(request: HttpRequest, cursor: str) -> list[Any]:
    """The key in a cursor. Raises InvalidRequest for one that this call didn't give."""
    try:
        key: list[Any] = signing.loads(cursor, salt=_salt(request))
    except signing.BadSignature:
        raise InvalidRequest({"cursor": ["is not one that this call gave"]}) from None
    return key


def _salt(request: HttpRequest) -> str:
    """Each list has keys of its own shape: the cursor of another is as good as a forged one."""
    return f"leasing.api.pages:{request.path}"


def proxies_after(proxies: QuerySet[Proxy], request: HttpRequest, cursor: str | None) -> QuerySet[Proxy]:
    """The proxies that come after the cursor's, in the order of namespace, name and id."""
    ordered = proxies.order_by("namespace", "name", "id")
    if cursor is None:
        return ordered
    row = '("fleet_proxy"."namespace", "fleet_proxy"."name", "fleet_proxy"."id") > (%s, %s, %s)'
    return ordered.filter(RawSQL(row, read_cursor(request, cursor), BooleanField()))  # noqa: S611  values are parameters

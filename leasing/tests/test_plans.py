"""How the database finds a page of proxies: by an index, whatever is asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from leasing import queries
from leasing.book import DatabaseLeaseBook
from leasing.selectors import Selector
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.phases import Phase, Verdict

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PROXIES, PAGE = 3000, 50
NOTHING: dict[str, Any] = {"healthy": None, "available": None, "target": None, "selector": Selector()}


@pytest.fixture
def fleet() -> None:
    book = DatabaseLeaseBook()
    made = Proxy.objects.bulk_create(
        Proxy(
            name=f"p{number}",
            namespace=f"n{number % 30}",
            provider=f"e{number % 30}",
            phase=Phase.UNHEALTHY if number % 100 == 0 else Phase.READY,
            verdict=Verdict.HEALTHY,
            attributes={"geo": f"r{number % 100}"},
        )
        for number in range(PROXIES)
    )
    for proxy in made:
        book.publish(proxy.pk, leasable=proxy.is_leasable, max_leases=5, generation=1)
    with connection.cursor() as cursor:
        cursor.execute("analyze")


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({}, "proxy_order"),
        ({"healthy": True}, "proxy_order"),
        ({"healthy": False}, "proxy_order"),
        ({"available": True}, "proxy_order"),
        ({"target": "example.com"}, "proxy_order"),
        ({"namespace": "n3"}, "proxy_order"),
        ({"provider": "e3", "phase": "Unhealthy"}, "proxy_provider_phase"),
        ({"selector": Selector.parse("geo=r7")}, "proxy_attributes"),
    ],
)
def test_every_filter_has_its_index(fleet: None, asked: dict[str, Any], index: str) -> None:
    page = queries.proxies(**NOTHING | asked, now=NOW).order_by("namespace", "name", "id")[:PAGE]
    plan = page.explain()
    assert index in plan, plan
    assert "Seq Scan on fleet_proxy" not in plan, plan

"""What a process knows of the fleet may be old; what it grants never is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from leasing import index
from leasing.allocation import Granted, Wish, grant
from leasing.ids import uuid7
from leasing.index import EXACT, SAMPLE, FleetIndex
from leasing.models import ProxyLoad
from leasing.selectors import Selector
from leasing.tests.fleet import make_proxy, publish
from proxyfleet.fleet.models import Proxy

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
FOREVER = 1e9
EU = Selector.parse("geo=eu")


def take(selector: Selector = EU) -> list[Granted]:
    return grant(Wish(selector, "example.com"), [uuid7(NOW)], now=NOW, expires_at=NOW + timedelta(minutes=1))


def known(selector: Selector = EU) -> set[int]:
    return {candidate.proxy_id for candidate in index.index.candidates(selector, exclude=(), wanted=1)}


def change(proxy: Proxy, **columns: object) -> None:
    Proxy.objects.filter(pk=proxy.pk).update(generation=proxy.generation + 1, **columns)
    proxy.refresh_from_db()
    publish(proxy)


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """A proxy of the EU, known to an index that never looks again."""
    proxy = make_proxy("a", attributes={"geo": "eu"}, max_leases=5)
    monkeypatch.setattr(index, "index", FleetIndex(max_age=FOREVER))
    assert known() == {proxy.pk}
    return proxy


@pytest.mark.parametrize("columns", [{"attributes": {"geo": "us"}}, {"cordoned": True}, {"phase": "Unhealthy"}])
def test_what_changed_since_is_not_leased(behind: Proxy, columns: dict[str, object]) -> None:
    # A version is a transaction, and a test is all one.
    ProxyLoad.objects.update(version=1)
    index.index = FleetIndex(max_age=FOREVER)
    assert known() == {behind.pk}
    change(behind, **columns)
    assert known() == {behind.pk}
    assert take() == []
    assert ProxyLoad.objects.get().active == 0


def test_what_is_not_known_yet_is_leased(behind: Proxy) -> None:
    other = make_proxy("b", attributes={"geo": "us"})
    (lease,) = take(Selector.parse("geo=us"))
    assert lease.proxy.id == other.pk


def test_changes_are_followed() -> None:
    one = make_proxy("one", attributes={"geo": "eu"})
    two = make_proxy("two", attributes={"geo": "us"})
    assert (known(), known(Selector())) == ({one.pk}, {one.pk, two.pk})
    change(two, attributes={"geo": "eu"})
    change(one, cordoned=True)
    assert (known(), known(Selector())) == ({two.pk}, {two.pk})


def test_a_row_of_another_cluster_s_future_is_no_change_that_comes_again_and_again() -> None:
    make_proxy("a", attributes={"geo": "eu"})
    ProxyLoad.objects.update(version=2**50)
    assert len(known()) == 1
    with connection.execute_wrapper(lambda *_: pytest.fail("asked by the ORM")):
        assert list(index._read(index._CHANGED, since=1)) == []


def test_of_many_some_are_drawn_and_of_few_all() -> None:
    for number in range(EXACT):
        make_proxy(f"p{number}")
    assert len(known(Selector())) == EXACT
    make_proxy("one-more")
    assert len(known(Selector())) == SAMPLE
    assert len({proxy for _ in range(200) for proxy in known(Selector())}) > EXACT / 2


def test_a_large_fleet_is_loaded_evenly() -> None:
    for number in range(EXACT + 36):
        make_proxy(f"p{number}", max_leases=20)
    for _ in range(500):
        take(Selector())
    loads = ProxyLoad.objects.values_list("active", flat=True)
    assert max(loads) - min(loads) <= 3

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.deletion import RestrictedError

from leasing import allocation, endings, queries
from leasing.allocation import Granted, Wish, grant
from leasing.book import DatabaseLeaseBook
from leasing.database import fetch
from leasing.ids import uuid7
from leasing.models import Cooldown, EndCause, EndedLease, Lease, ProxyLoad
from leasing.selectors import Selector
from leasing.tests.fleet import make_proxy, publish
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.phases import Phase

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def take(
    count: int = 1, *, now: datetime = NOW, ttl: timedelta = MINUTE, selector: str = "", **wish: Any
) -> list[Granted]:
    asked = Wish(selector=Selector.parse(selector), **{"target": ""} | wish)
    return grant(asked, [uuid7(now) for _ in range(count)], now=now, expires_at=now + ttl)


def names(leases: list[Granted]) -> list[str]:
    by_id = Proxy.objects.in_bulk([lease.proxy.id for lease in leases])
    return [by_id[lease.proxy.id].name for lease in leases]


def test_the_least_loaded_proxy_comes_first() -> None:
    make_proxy("busy", max_leases=9)
    take(2)
    make_proxy("idle", max_leases=9)
    assert names(take()) == ["idle"]


def test_of_equals_the_one_that_was_idle_for_longest_comes_first() -> None:
    for name in ("a", "b", "c"):
        make_proxy(name, max_leases=5)
    order = []
    for second in range(6):
        now = NOW + timedelta(seconds=second)
        (lease,) = take(now=now)
        order += names([lease])
        endings.release(lease.id, cause=EndCause.RELEASED, now=now)
    assert sorted(order[:3]) == ["a", "b", "c"]
    assert order[3:] == order[:3]


def test_a_batch_is_on_distinct_proxies() -> None:
    for name in ("a", "b", "c"):
        make_proxy(name, max_leases=5)
    assert sorted(names(take(3))) == ["a", "b", "c"]
    assert sorted(names(take(5))) == ["a", "b", "c"]


def test_a_batch_gets_what_there_is() -> None:
    make_proxy("a", max_leases=1)
    make_proxy("b", max_leases=2)
    assert sorted(names(take(5))) == ["a", "b"]
    assert names(take(5)) == ["b"]
    assert take(5) == []


def test_only_what_matches_and_is_not_excluded() -> None:
    make_proxy("eu", attributes={"geo": "eu"}, max_leases=2)
    make_proxy("us", attributes={"geo": "us"}, max_leases=2)
    assert names(take(2, selector="geo=eu")) == ["eu"]
    assert names(take(2, exclude=["default/eu"])) == ["us"]
    assert take(selector="geo=eu", exclude=["default/eu"]) == []


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.READY])
def test_only_what_is_ready(phase: Phase) -> None:
    make_proxy("a", phase=phase)
    assert take() == []


@pytest.mark.parametrize("column", [{"cordoned": True}, {"deletion_requested_at": NOW}])
def test_nothing_that_is_cordoned_or_on_its_way_out(column: dict[str, Any]) -> None:
    make_proxy("a", **column)
    assert take() == []


def test_a_cooldown_is_for_one_target_and_a_time() -> None:
    proxy = make_proxy("a", max_leases=9)
    Cooldown.objects.create(proxy=proxy, target="example.com", until=NOW + MINUTE)
    assert take(target="example.com") == []
    assert names(take(target="other.example")) == ["a"]
    assert names(take()) == ["a"]
    assert names(take(target="example.com", now=NOW + MINUTE)) == ["a"]


def test_a_lease_whose_time_is_over_blocks_nobody() -> None:
    make_proxy("a")
    (lease,) = take()
    assert take() == []
    assert names(take(now=NOW + MINUTE)) == ["a"]
    assert EndedLease.objects.get(pk=lease.id).cause == EndCause.EXPIRED


def test_a_slot_that_the_sweeper_frees_in_this_very_moment_is_not_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken, if by a lease whose time was over, when free ones were looked for, and is free a moment later."""
    make_proxy("a")
    take()
    after = NOW + MINUTE

    def fetch_then_sweep(query: str, *args: Any, **kwargs: Any) -> list[tuple[Any, ...]]:
        rows = fetch(query, *args, **kwargs)
        if "for no key update" not in query:
            endings.end_expired(after)
        return rows

    monkeypatch.setattr(allocation, "fetch", fetch_then_sweep)
    assert names(take(now=after)) == ["a"]


def test_leases_of_other_proxies_that_are_over_promise_nothing() -> None:
    make_proxy("other", attributes={"geo": "us"})
    take(selector="geo=us")
    assert take(selector="geo=eu", now=NOW + MINUTE) == []
    assert take(selector="geo=us", exclude=["default/other"], now=NOW + MINUTE) == []
    assert Lease.objects.count() == 1


def test_max_leases_can_be_lowered_below_what_is_out() -> None:
    proxy = make_proxy("a", max_leases=3)
    leases = [*take(), *take(), *take()]
    proxy.max_leases = 1
    publish(proxy)
    for lease in leases:
        assert take() == []
        endings.release(lease.id, cause=EndCause.RELEASED, now=NOW)
    assert names(take()) == ["a"]
    assert take() == []


def test_the_database_itself_refuses_a_lease_too_many() -> None:
    proxy = make_proxy("a", max_leases=2)
    take()
    take()
    with pytest.raises(IntegrityError, match="load_within_ceiling"), transaction.atomic():
        ProxyLoad.objects.update(active=F("active") + 1)
    proxy.max_leases = 1
    publish(proxy)
    with pytest.raises(IntegrityError, match="load_within_ceiling"), transaction.atomic():
        ProxyLoad.objects.update(active=F("active") + 1)


def test_a_lease_ends_once() -> None:
    make_proxy("a")
    (lease,) = take()
    assert endings.release(lease.id, cause=EndCause.RELEASED, now=NOW)
    assert not endings.release(lease.id, cause=EndCause.RELEASED, now=NOW)
    assert ProxyLoad.objects.get().active == 0
    assert EndedLease.objects.get().cause == EndCause.RELEASED


def test_the_end_of_a_proxy_ends_its_leases_and_keeps_the_cause() -> None:
    proxy = make_proxy("a", max_leases=2)
    book = DatabaseLeaseBook()
    (expired,) = take(ttl=MINUTE)
    (live,) = take(ttl=3 * MINUTE)
    later = NOW + 2 * MINUTE
    assert book.active(proxy.pk, later) == 1
    with pytest.raises(RestrictedError):
        proxy.delete()
    with transaction.atomic():
        book.publish(proxy.pk, leasable=False, max_leases=2, generation=1)
        assert book.end_all(proxy.pk, cause=EndCause.PROXY_DELETED, now=later) == 1
        proxy.delete()
    ended = EndedLease.objects.in_bulk()
    assert (ended[live.id].cause, ended[live.id].ended_at) == (EndCause.PROXY_DELETED, later)
    assert (ended[expired.id].cause, ended[expired.id].ended_at) == (EndCause.EXPIRED, NOW + MINUTE)
    assert {(lease.namespace, lease.name) for lease in ended.values()} == {("default", "a")}


def test_a_shortage_counts_each_proxy_under_one_cause() -> None:
    make_proxy("full")
    take()
    cooling = make_proxy("cooling")
    Cooldown.objects.create(proxy=cooling, target="example.com", until=NOW + 5 * MINUTE)
    make_proxy("ill", phase=Phase.UNHEALTHY)
    make_proxy("new", phase=Phase.PROVISIONING)
    make_proxy("cordoned", cordoned=True)
    make_proxy("leaving", phase=Phase.TERMINATING)
    make_proxy("other", attributes={"geo": "us"})
    wish = Wish(selector=Selector.parse("geo!=us"), target="example.com", exclude=["default/new"])
    shortage = queries.shortage(wish, NOW)
    assert (shortage.matching, shortage.full, shortage.cooling, shortage.unhealthy, shortage.draining) == (
        5,
        1,
        1,
        1,
        2,
    )
    assert shortage.free_at == NOW + MINUTE


def test_a_shortage_ends_when_cooldown_and_lease_are_both_over() -> None:
    proxy = make_proxy("a")
    Cooldown.objects.create(proxy=proxy, target="example.com", until=NOW + 5 * MINUTE)
    take(ttl=MINUTE)
    wish = Wish(selector=Selector(), target="example.com")
    assert queries.shortage(wish, NOW).free_at == NOW + 5 * MINUTE


def test_only_time_ends_a_shortage_by_time() -> None:
    make_proxy("ill", phase=Phase.UNHEALTHY)
    assert queries.shortage(Wish(selector=Selector(), target=""), NOW).free_at is None

"""What the API's tests can't show: races between callers, and what the clock does."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from leasing import operations, tasks
from leasing.allocation import Granted, Wish
from leasing.errors import LeaseEnded
from leasing.ids import uuid7
from leasing.models import Cooldown, EndCause, EndedLease, IdempotencyKey, Lease, ProxyLoad, Report, Result
from leasing.operations import RequestKey
from leasing.retention import IDEMPOTENCY_RETENTION, prune
from leasing.selectors import Selector
from leasing.tests.conftest import RecordingProber
from leasing.tests.fleet import make_proxy
from proxyfleet.celery import app
from proxyfleet.conf import settings
from proxyfleet.local.processes import wait_until

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANY = Wish(selector=Selector(), target="example.com")


def acquire(count: int = 1, *, now: datetime = NOW, key: str = "") -> Sequence[Lease | Granted]:
    request_key = RequestKey(key, fingerprint="same") if key else None
    return operations.acquire(ANY, count=count, ttl_seconds=60, now=now, request_key=request_key)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("count", [1, 3])
def test_a_request_that_is_sent_twice_at_once_is_served_once(count: int) -> None:
    for name in ("a", "b", "c"):
        make_proxy(name, max_leases=20)
    for attempt in range(10):
        together = threading.Barrier(4)

        def send(key: str, together: threading.Barrier = together) -> set[Any]:
            try:
                together.wait()
                return {lease.id for lease in acquire(count, key=key)}
            finally:
                connection.close()

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(send, [f"key-{attempt}"] * 4))
        assert answers == [answers[0]] * 4
        assert len(answers[0]) == count
    assert Lease.objects.count() == 10 * count
    assert sum(ProxyLoad.objects.values_list("active", flat=True)) == 10 * count


@pytest.mark.django_db(transaction=True)
def test_a_request_that_is_sent_again_is_not_refused_for_the_lease_it_got() -> None:
    """Its first process has the last slot and has not committed yet, when the second one asks for it."""
    make_proxy("a")
    granted, go_on = threading.Event(), threading.Event()

    def first() -> UUID:
        try:
            with transaction.atomic():
                (lease,) = acquire(key="same")
                granted.set()
                assert go_on.wait(60)
            return lease.id
        finally:
            connection.close()

    def again() -> UUID:
        try:
            (lease,) = acquire(key="same")
            return lease.id
        finally:
            connection.close()

    # The key is there before: otherwise the second would wait for the first at the key already.
    IdempotencyKey.objects.create(key="same", fingerprint="same", lease_ids=[uuid7(NOW)], created_at=NOW)
    with ThreadPoolExecutor(2) as pool:
        try:
            one = pool.submit(first)
            assert granted.wait(60)
            two = pool.submit(again)
            assert wait_until(_somebody_waits, 60)
        finally:
            go_on.set()
        assert one.result() == two.result()
    assert Lease.objects.count() == 1


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "select exists (select from pg_stat_activity where datname = current_database() "
            "and wait_event_type = 'Lock')"
        )
        return bool(cursor.fetchone()[0])


@pytest.mark.django_db
def test_the_sweeper_ends_what_is_over_and_nothing_else() -> None:
    make_proxy("a", max_leases=2)
    (over,) = acquire(now=NOW - timedelta(minutes=5))
    (going_on,) = acquire()
    assert operations.expire(NOW) == 1
    assert operations.expire(NOW) == 0
    assert [lease.id for lease in Lease.objects.all()] == [going_on.id]
    assert (EndedLease.objects.get().pk, EndedLease.objects.get().cause) == (over.id, EndCause.EXPIRED)
    assert ProxyLoad.objects.get().active == 1


@pytest.mark.django_db
def test_the_sweeper_clears_a_backlog_of_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    make_proxy("a", max_leases=100)
    for _ in range(25):
        acquire()
    monkeypatch.setattr("leasing.endings.BATCH", 10)
    assert operations.expire(NOW + timedelta(minutes=2)) == 25


@pytest.mark.django_db
def test_a_renewal_saves_a_lease_from_the_sweeper() -> None:
    make_proxy("a")
    (lease,) = acquire()
    operations.renew(lease.id, ttl_seconds=600, now=NOW + timedelta(seconds=59))
    assert operations.expire(NOW + timedelta(seconds=61)) == 0
    with pytest.raises(LeaseEnded):
        operations.renew(lease.id, ttl_seconds=600, now=NOW + timedelta(hours=1))


@pytest.mark.django_db
def test_history_is_kept_for_its_time(prober: RecordingProber) -> None:
    make_proxy("a", max_leases=5)
    (ended,) = acquire()
    (reported,) = acquire()
    operations.release(ended.id, now=NOW)
    operations.report(reported.id, result=Result.BLOCKED, target="", cooldown_seconds=60, now=NOW)
    IdempotencyKey.objects.create(key="k", fingerprint="f", lease_ids=[], created_at=NOW)

    prune(NOW)
    assert [model.objects.count() for model in (EndedLease, Report, Cooldown, IdempotencyKey)] == [1, 1, 1, 1]
    prune(NOW + IDEMPOTENCY_RETENTION + timedelta(seconds=1))
    assert [model.objects.count() for model in (EndedLease, Report, Cooldown, IdempotencyKey)] == [1, 1, 0, 0]
    prune(NOW + timedelta(days=settings().event_retention_days, seconds=1))
    assert [model.objects.count() for model in (EndedLease, Report)] == [0, 0]
    assert [lease.id for lease in Lease.objects.all()] == [reported.id]


@pytest.mark.django_db
def test_every_leasing_task_of_the_schedule_exists_and_runs() -> None:
    scheduled = {entry["task"] for entry in app.conf.beat_schedule.values() if entry["task"].startswith("leasing.")}
    assert scheduled == {tasks.expire_leases.name, tasks.prune.name}
    tasks.expire_leases()
    tasks.prune()

"""History is deleted in steps that are short however much of it there is, and never at the expense of who works."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from leasing import retention
from leasing.models import Cooldown, EndedLease
from leasing.tests.fleet import make_proxy
from proxyfleet.conf import settings
from proxyfleet.fleet import retention as steps

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(days=settings().event_retention_days, seconds=1)

_HISTORY = """
insert into leasing_endedlease (id, proxy_uid, namespace, name, owner, client, target, created_at, ended_at, cause)
select gen_random_uuid(), gen_random_uuid(), 'default', 'a', '', '', '', %(at)s, %(at)s - number * %(apart)s, 'released'
from generate_series(0, %(count)s - 1) number
"""


def make_history(count: int, *, at: datetime = OLD, apart: timedelta = timedelta(seconds=1)) -> None:
    with connection.cursor() as cursor:
        params: dict[str, Any] = {"at": at, "apart": apart, "count": count}
        cursor.execute(_HISTORY, params)


def always() -> bool:
    return True


@pytest.mark.django_db
@pytest.mark.parametrize("apart", [timedelta(seconds=1), timedelta(0)], ids=["one after the other", "at one moment"])
def test_all_that_is_old_goes_in_steps_of_bounded_size(monkeypatch: pytest.MonkeyPatch, apart: timedelta) -> None:
    monkeypatch.setattr(steps, "BATCH", 10)
    make_history(35, apart=apart)
    make_history(5, at=NOW)
    with CaptureQueriesContext(connection) as statements:
        assert steps.delete_before(NOW - timedelta(days=1), EndedLease, "ended_at", has_time=always) == 35
    assert len(statements) == 4
    assert EndedLease.objects.count() == 5


@pytest.mark.django_db
def test_what_there_is_no_time_for_is_left_for_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "BATCH", 10)
    make_history(25)
    assert [steps.delete_before(NOW, EndedLease, "ended_at", has_time=lambda: False) for _ in range(4)] == [
        10,
        10,
        5,
        0,
    ]


@pytest.mark.django_db(transaction=True)
def test_each_step_is_a_transaction_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "BATCH", 10)
    make_history(25)
    left: list[int] = []

    def count() -> None:
        left.append(EndedLease.objects.count())
        connection.close()

    def look() -> bool:
        elsewhere = threading.Thread(target=count)
        elsewhere.start()
        elsewhere.join()
        return True

    steps.delete_before(NOW, EndedLease, "ended_at", has_time=look)
    assert left == [15, 5]


@pytest.fixture
def held(transactional_db: None) -> Iterator[Any]:
    """Holds a row in a transaction of its own, as who works with it does, until the test ends or says so."""
    holding, done = threading.Event(), threading.Event()
    threads = []

    def hold(work: Any) -> threading.Event:
        def run() -> None:
            with transaction.atomic():
                work()
                holding.set()
                done.wait(60)
            connection.close()

        thread = threading.Thread(target=run)
        threads.append(thread)
        thread.start()
        assert holding.wait(60)
        return done

    yield hold
    done.set()
    for thread in threads:
        thread.join()


def test_a_row_that_somebody_holds_is_passed_over(held: Any) -> None:
    make_history(3)
    taken = EndedLease.objects.first()
    assert taken is not None
    held(lambda: EndedLease.objects.select_for_update().get(pk=taken.pk))
    with connection.cursor() as cursor:
        cursor.execute("set lock_timeout = '1s'")  # the connection is closed with the test
    assert steps.delete_before(NOW, EndedLease, "ended_at", has_time=always) == 2
    assert list(EndedLease.objects.all()) == [taken]
    connection.close()


def test_a_cooldown_that_a_report_has_just_lengthened_stays(transactional_db: None) -> None:
    """The pruning begins when the report has written and not committed, and reads what was there before."""
    cooldown = Cooldown.objects.create(proxy=make_proxy("a"), target="a.example", until=NOW - timedelta(seconds=1))
    pruned = threading.Event()

    def prune() -> None:
        retention.prune(NOW)
        pruned.set()
        connection.close()

    with transaction.atomic():
        Cooldown.objects.update(until=NOW + timedelta(hours=1))
        thread = threading.Thread(target=prune)
        thread.start()
        assert pruned.wait(60), "waits for the report"
    thread.join()
    assert Cooldown.objects.get() == cooldown
    retention.prune(NOW)
    assert Cooldown.objects.get() == cooldown


@pytest.mark.django_db
def test_a_step_reads_what_it_deletes_and_not_the_table() -> None:
    """Half a step at the end of a large table: were it sorted or scanned, every step would cost what the table does."""
    make_history(20_000, at=NOW)
    make_history(100)
    with connection.cursor() as cursor:
        cursor.execute("analyze leasing_endedlease")
        statement = steps._DELETE.format(table="leasing_endedlease", column="ended_at", batch=steps.BATCH)
        cursor.execute(f"explain (format text) {statement}", {"before": OLD + timedelta(minutes=1), "since": OLD})
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "ended_lease_age" in plan
    assert "Seq Scan" not in plan

"""What is remembered of probes beside the broker's messages, on the tests' own Valkey."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from celery import Celery, current_app

from health import memory
from health.results import Measured, Outcome, ProbeResult, Stage
from proxyfleet.fleet.ports import LastProbe, ProbeSlot

NOON = datetime(2026, 5, 4, 12, 2, tzinfo=UTC)
SLOT = NOON.replace(minute=0)
PROBES = memory.ProbesByBroker()


@pytest.fixture(autouse=True)
def _listens() -> Iterator[None]:
    memory._Broker.silent_until = 0.0
    yield
    memory._Broker.silent_until = 0.0


def result(pk: int = 1, outcome: Outcome = Outcome.OK, seconds: float = 0.12) -> ProbeResult[Measured]:
    return ProbeResult(
        Measured(pk, 1), outcome, Stage.RESPONSE, {Stage.CONNECT: 0.02, Stage.RESPONSE: seconds - 0.02}, ""
    )


def keep(uid: UUID, moment: datetime, *results: ProbeResult[Measured]) -> None:
    memory.keep({1: uid}, results or (result(),), moment)


def test_the_last_probe_of_each() -> None:
    first, second, unknown = uuid4(), uuid4(), uuid4()
    memory.keep({1: first, 2: second}, [result(1), result(2, Outcome.TIMEOUT, 10)], NOON)
    memory.keep({1: first}, [result(1, seconds=0.3)], NOON + timedelta(seconds=30))
    assert PROBES.last_each([first, second, unknown]) == {
        first: LastProbe(NOON + timedelta(seconds=30), 300, "Ok"),
        second: LastProbe(NOON, 10_000, "Timeout"),
    }
    assert PROBES.last_each([]) == {}


def test_a_slot_counts_and_keeps_the_last_good_time() -> None:
    uid = uuid4()
    keep(uid, NOON, result(seconds=0.1), result(outcome=Outcome.TIMEOUT, seconds=10), result(seconds=0.2))
    assert PROBES.last_day(uid, NOON) == [ProbeSlot(SLOT, good=2, failed=1, milliseconds=200)]
    failed = uuid4()
    keep(failed, NOON, result(outcome=Outcome.TIMEOUT))
    assert PROBES.last_day(failed, NOON) == [ProbeSlot(SLOT, good=0, failed=1, milliseconds=None)]


def test_counts_and_times_stop_at_what_fits() -> None:
    uid = uuid4()
    keep(uid, NOON, *[result(seconds=100)] * 300, *[result(outcome=Outcome.TIMEOUT)] * 300)
    assert PROBES.last_day(uid, NOON) == [ProbeSlot(SLOT, good=255, failed=255, milliseconds=65_535)]


def test_a_day_is_the_last_24_hours_across_midnight() -> None:
    uid = uuid4()
    at = [NOON - timedelta(hours=25), NOON - timedelta(hours=23), NOON.replace(hour=0, minute=0), NOON]
    for number, moment in enumerate(at):
        keep(uid, moment, result(seconds=0.1 * (number + 1)))
    found = PROBES.last_day(uid, NOON)
    assert [(slot.at, slot.milliseconds) for slot in found] == [
        (SLOT - timedelta(hours=23), 200),
        (SLOT.replace(hour=0), 300),
        (SLOT, 400),
    ]
    assert [slot.milliseconds for slot in PROBES.last_day(uid, NOON + timedelta(days=1) - memory.SLOT)] == [400]
    assert PROBES.last_day(uid, NOON + timedelta(days=1)) == []


def test_all_of_it_expires() -> None:
    uid = uuid4()
    keep(uid, NOON)
    memory.keep_check("mem", NOON)
    pool: Any = current_app.pool
    with pool.acquire() as connection:
        client = connection.default_channel.client
        keys = [key for key in client.keys("*") if uid.hex.encode() in key or key.endswith(b":check:mem")]
        assert len(keys) == 3
        assert all(0 < client.ttl(key) <= memory.EXPIRES for key in keys)


def test_the_last_check() -> None:
    assert PROBES.last_check("nobody") is None
    memory.keep_check("east", NOON)
    assert PROBES.last_check("east") == NOON


def test_a_broker_that_is_down_costs_no_more_than_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    down = Celery("down", broker="redis://127.0.0.1:1", set_as_current=False)
    monkeypatch.setattr(memory, "current_app", down)
    uid = uuid4()
    with caplog.at_level(logging.WARNING, logger="health.memory"):
        keep(uid, NOON)
        assert len(caplog.records) == 1
        # Left alone for a while, and then no more is heard of it.
        assert (PROBES.last_each([uid]), PROBES.last_day(uid, NOON), PROBES.last_check("east")) == ({}, [], None)
        assert len(caplog.records) == 1
    monkeypatch.undo()
    assert PROBES.last_each([uid]) == {}, "it is not asked"
    memory._Broker.silent_until = 0.0
    keep(uid, NOON)
    assert uid in PROBES.last_each([uid])


def test_a_broker_of_another_kind_remembers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "current_app", Celery("other", broker="memory://", set_as_current=False))
    keep(uuid4(), NOON)
    assert PROBES.last_day(uuid4(), NOON) == []

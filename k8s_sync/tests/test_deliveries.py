"""What is owed to a handler is delivered, however the handler behaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from k8s_sync import deliveries
from k8s_sync.client import Object
from k8s_sync.deliveries import Deliveries
from k8s_sync.errors import Refused
from k8s_sync.store import ObjectStore
from k8s_sync.tests.scripted import obj

SECONDS = 20
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "FIRST_DELAY_SECONDS", 0.01)


@contextmanager
def running(owed: Deliveries) -> Iterator[None]:
    thread = threading.Thread(target=owed.run)
    thread.start()
    try:
        yield
    finally:
        owed.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


def recorder(into: list[tuple[str, int | None]]) -> Callable[[str, Object | None], None]:
    def handle(key: str, found: Object | None) -> None:
        into.append((key, int(found["metadata"]["resourceVersion"]) if found else None))

    return handle


def store_of(*objects: Object) -> ObjectStore:
    store = ObjectStore()
    store.replace(objects)
    return store


def test_an_object_is_delivered_once_as_it_is_by_then() -> None:
    seen: list[tuple[str, int | None]] = []
    store = store_of(obj("a", 1))
    owed = Deliveries(store, recorder(seen), known=list)
    owed.add("a")
    store.put(obj("a", 2))
    owed.add("a")
    owed.add("gone")
    assert not owed.is_idle
    with running(owed):
        assert owed.wait_until_idle(SECONDS)
    assert seen == [("a", 2), ("gone", None)]


def test_a_change_during_its_delivery_is_delivered_again() -> None:
    seen: list[tuple[str, int | None]] = []
    store = store_of(obj("a", 1))

    def handle(key: str, found: Object | None) -> None:
        recorder(seen)(key, found)
        if len(seen) == 1:
            store.put(obj("a", 2))
            owed.add("a")

    owed = Deliveries(store, handle, known=list)
    owed.add("a")
    with running(owed):
        assert owed.wait_until_idle(SECONDS)
    assert seen == [("a", 1), ("a", 2)]


def test_one_that_fails_is_tried_again_and_delays_no_other() -> None:
    seen: list[str] = []

    def handle(key: str, found: Object | None) -> None:
        seen.append(key)
        if key == "bad" and seen.count("bad") < 3:
            assert owed.owes("bad")
            raise OSError("the database is away")

    owed = Deliveries(ObjectStore(), handle, known=list)
    owed.add("bad")
    owed.add("good")
    with running(owed):
        assert owed.wait_until_idle(SECONDS)
    assert seen == ["bad", "good", "bad", "bad"]
    assert not owed.owes("bad")


def test_a_failure_that_the_cluster_explains_is_one_line_that_names_the_object(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries = []

    def handle(key: str, _found: Object | None) -> None:
        tries.append(key)
        if len(tries) == 1:
            raise Refused("the API server answered 403: you may not", 403)

    store = store_of(obj("a", 1))
    owed = Deliveries(store, handle, known=list)
    owed.add("a")
    with running(owed):
        assert owed.wait_until_idle(SECONDS)
    (record,) = caplog.records
    assert record.getMessage().startswith("ns/a could not be delivered")
    assert "you may not" in record.getMessage()
    assert record.exc_info is None


def test_a_resync_delivers_what_the_store_holds_and_what_the_handler_remembers() -> None:
    seen: list[tuple[str, int | None]] = []
    failures = [OSError("the database is away")]

    def known() -> list[str]:
        if failures:
            raise failures.pop()
        return ["a", "gone"]

    owed = Deliveries(store_of(obj("a", 1), obj("b", 2)), recorder(seen), known=known)
    owed.resync()
    assert not owed.is_idle
    assert owed.owes("a")
    with running(owed):
        assert owed.wait_until_idle(SECONDS)
    assert sorted(seen) == [("a", 1), ("b", 2), ("gone", None)]


def test_everything_is_delivered_again_from_time_to_time() -> None:
    third = threading.Event()
    seen: list[str] = []

    def handle(key: str, found: Object | None) -> None:
        seen.append(key)
        if len(seen) == 3:
            third.set()

    owed = Deliveries(store_of(obj("a", 1)), handle, known=list, resync_seconds=0.05)
    owed.resync()
    with running(owed):
        assert third.wait(SECONDS)

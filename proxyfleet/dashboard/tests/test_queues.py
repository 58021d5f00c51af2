"""Workers and queues, as a real broker and a real worker tell of them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from celery import current_app
from celery.contrib.testing.worker import start_worker

from proxyfleet.celery import app
from proxyfleet.dashboard.queues import Broker, _Watch
from proxyfleet.fleet.queues import DEFAULT_QUEUE

DEADLINE = 60


def until(met: Callable[[Broker], bool]) -> Broker:
    """What the broker says once ``met``: a busy machine may be slower than a person wants to wait."""
    watch, deadline = _Watch(), time.monotonic() + DEADLINE
    while not met(broker := watch.ask()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert met(broker), broker
    return broker


@pytest.fixture
def emptied() -> Iterator[None]:
    current_app.control.purge()
    yield
    current_app.control.purge()


@contextlib.contextmanager
def broker_at(url: str) -> Iterator[None]:
    before = current_app.conf.broker_write_url
    current_app.conf.update(broker_write_url=url)
    try:
        yield
    finally:
        current_app.conf.update(broker_write_url=before)


def depth(broker: Broker) -> int:
    return next((queue.depth for queue in broker.queues if queue.name == DEFAULT_QUEUE), 0)


def test_what_waits_is_counted_and_how_long_it_has(emptied: None) -> None:
    assert until(lambda broker: not broker.problem).depth == 0
    for _ in range(3):
        current_app.send_task("dashboard.roll_up", queue=DEFAULT_QUEUE)
    time.sleep(1)
    broker = until(lambda broker: depth(broker) == 3)
    assert broker.depth == 3
    [waiting] = [queue for queue in broker.queues if queue.depth]
    assert waiting.oldest_seconds is not None
    assert 1 <= waiting.oldest_seconds < DEADLINE


def test_a_worker_answers(emptied: None) -> None:
    assert until(lambda broker: not broker.problem).workers == []
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=60):
        assert len(until(lambda broker: bool(broker.workers)).workers) == 1


def test_a_broker_that_is_down_is_said_to_be() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}/0"
    with broker_at(url):
        assert until(lambda broker: "within" not in broker.problem).problem == "The broker can't be reached."


def test_a_broker_that_says_nothing_holds_nobody_up_and_is_asked_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, broker_at(f"redis://127.0.0.1:{silent.getsockname()[1]}/0"):
        watch = _Watch()
        began = time.monotonic()
        broker = watch.ask()
        took = time.monotonic() - began
        assert broker.problem in ("The broker did not answer within 1 s.", "The broker can't be reached.")
        assert took < 10, "kombu alone would wait for minutes"

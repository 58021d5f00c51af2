"""Hints are worth a short wait, no more, whatever state the broker is in."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery import current_app

from proxyfleet.fleet import hints

QUEUE = "hints"


@pytest.fixture
def broker() -> Iterator[int]:
    """The pid of the broker, which may be stopped."""
    hints._Broker.silent_until = 0
    with current_app.connection_for_read() as connection:
        channel: Any = connection.default_channel
        pid = int(channel.client.info()["process_id"])
        yield pid
        os.kill(pid, signal.SIGCONT)
        channel.client.delete(QUEUE)
    hints._Broker.silent_until = 0


def seconds_to_send() -> float:
    began = time.monotonic()
    hints.send("nothing", queue=QUEUE)
    return time.monotonic() - began


def queued() -> int:
    with current_app.connection_for_read() as connection:
        channel: Any = connection.default_channel
        return int(channel.client.llen(QUEUE))


def test_a_broker_that_hangs_is_waited_for_once(broker: int) -> None:
    hints.send("nothing", queue=QUEUE)
    assert queued() == 1
    os.kill(broker, signal.SIGSTOP)
    assert seconds_to_send() > 1
    assert max(seconds_to_send() for _ in range(20)) < 1


def test_a_broker_that_is_back_gets_hints_again(broker: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "SILENCE_SECONDS", 0)
    os.kill(broker, signal.SIGSTOP)
    hints.send("nothing", queue=QUEUE)
    os.kill(broker, signal.SIGCONT)
    before = queued()
    hints.send("nothing", queue=QUEUE)
    assert queued() == before + 1

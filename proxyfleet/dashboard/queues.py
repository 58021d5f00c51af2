"""Celery as its broker tells: which workers answer, and what waits in each queue. Given up after a second."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from amqp.exceptions import NotFound
from celery import current_app
from kombu import Connection
from kombu.exceptions import ChannelError, OperationalError

from proxyfleet.fleet.queues import SENT_AT

logger = logging.getLogger(__name__)

GIVE_UP_SECONDS = 1.0
FRESH_SECONDS = 30
ANSWER_SECONDS = 0.4
"""How long workers have for their answer; they need a few milliseconds."""


@dataclass(frozen=True, slots=True)
class QueueState:
    name: str
    depth: int
    """Messages that no worker has taken."""
    oldest_seconds: float | None
    """How long the first of them has waited; None where the broker does not let one look, or nothing waits."""


@dataclass(frozen=True, slots=True)
class Broker:
    problem: str = ""
    """Why nothing is known; empty: all is."""
    workers: Sequence[str] = ()
    queues: Sequence[QueueState] = ()

    @property
    def depth(self) -> int:
        return sum(queue.depth for queue in self.queues)


class _Watch:
    """One look at a time, which everyone who asks meanwhile shares: a broker that hangs holds one thread, not all."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._looking = False
        self._seen: Broker | None = None
        self._seen_at = -math.inf
        """By the monotonic clock."""

    def ask(self) -> Broker:
        asked_at = time.monotonic()
        with self._changed:
            if not self._looking:
                self._looking = True
                threading.Thread(target=self._run, name="look at the broker", daemon=True).start()
            self._changed.wait_for(lambda: self._seen_at >= asked_at, GIVE_UP_SECONDS)
            if self._seen is None or time.monotonic() > self._seen_at + FRESH_SECONDS:
                return Broker(f"The broker did not answer within {GIVE_UP_SECONDS:g} s.")
            return self._seen

    def _run(self) -> None:
        try:
            with current_app.connection_for_write() as connection:
                self._tell(_look(connection))
        except (OperationalError, OSError) as error:
            logger.warning("The queues can't be looked at: %s", error)
            self._tell(Broker("The broker can't be reached."))
        finally:
            with self._changed:
                self._looking = False

    def _tell(self, broker: Broker) -> None:
        with self._changed:
            self._seen, self._seen_at = broker, time.monotonic()
            self._changed.notify_all()


_watch = _Watch()


def look() -> Broker:
    """What the broker says, or why it says nothing, within GIVE_UP_SECONDS.

    One that is slower than that is answered for by its last word, as long as that is fresh.
    """
    return _watch.ask()


def _look(connection: Connection) -> Broker:
    # Told here and not by the app's settings, which are for those who can wait.
    connection.transport_options = {
        **(connection.transport_options or {}),
        "socket_timeout": GIVE_UP_SECONDS,
        "socket_connect_timeout": GIVE_UP_SECONDS,
    }
    connection.connect_timeout = GIVE_UP_SECONDS
    connection.ensure_connection(max_retries=1, timeout=math.ceil(GIVE_UP_SECONDS))
    now = time.time()
    states = [_state(connection, queue.name, now) for queue in current_app.conf.task_queues]
    answers = current_app.control.broadcast("ping", reply=True, timeout=ANSWER_SECONDS, connection=connection) or []
    return Broker(workers=sorted(name for answer in answers for name in answer), queues=states)


def _state(connection: Connection, name: str, now: float) -> QueueState:
    with cast(Any, connection.channel()) as channel:  # the stubs know no channel's methods
        try:
            depth = channel.queue_declare(name, passive=True).message_count
        except (ChannelError, NotFound):
            return QueueState(name, 0, None)  # Redis knows no queue that is empty
        first = _first(connection, channel, name) if depth else None
    sent_at = first.get(SENT_AT) if first else None
    return QueueState(name, depth, max(0.0, now - sent_at) if sent_at else None)


def _first(connection: Connection, channel: Any, name: str) -> dict[str, Any] | None:
    """Headers of the message that is taken next. AMQP gives none without taking it out."""
    if connection.transport.driver_type != "redis":
        return None
    message = channel.client.lindex(name, -1)
    headers: dict[str, Any] | None = json.loads(message).get("headers") if message else None
    return headers

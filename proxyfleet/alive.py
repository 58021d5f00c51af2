"""How a worker or beat proves that it is alive: it touches a file while its loop turns.

A probe that asks through the broker (``celery inspect ping``) imports the whole product each time, and blames the
process for an outage of the broker. The file costs nothing and is about this process alone: it is stale when the loop
hangs, and absent while a worker waits for a broker, which no restart would bring back.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps

from proxyfleet.conf import settings

SECONDS = 5.0


def tell() -> None:
    """This process is alive now."""
    if (file := settings().alive_file) is not None:
        file.touch()


def tell_no_more() -> None:
    """From now on it can't tell, and that is no sign of anything."""
    if (file := settings().alive_file) is not None:
        file.unlink(missing_ok=True)


class Alive(bootsteps.StartStopStep):
    """A part of the worker's consumer: begun when the broker is connected, ended when it is lost."""

    requires = ("celery.worker.consumer.connection:Connection",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        self._turns: Any = None
        super().__init__(consumer, **options)

    def start(self, consumer: Any) -> None:
        tell()
        self._turns = consumer.timer.call_repeatedly(SECONDS, tell)

    def stop(self, consumer: Any) -> None:  # noqa: ARG002  the signature is Celery's
        if self._turns is not None:
            self._turns.cancel()
            self._turns = None
        tell_no_more()

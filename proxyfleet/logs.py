"""What is kept out of the log, so that the rest can be read."""

from __future__ import annotations

import logging
import time

from celery.beat import SchedulingError

REPEAT_SECONDS = 15


class BrokerOutage(logging.Filter):
    """Beat prints two stacks for each message that the broker did not take; one line now and then says as much."""

    def __init__(self) -> None:
        super().__init__()
        self._quiet_until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, SchedulingError):
            return True
        now = time.monotonic()
        if now < self._quiet_until:
            return False
        self._quiet_until = now + REPEAT_SECONDS
        record.msg, record.args, record.exc_info = "%s", (error,), None
        return True

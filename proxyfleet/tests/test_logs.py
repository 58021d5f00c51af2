from __future__ import annotations

import logging

import pytest
from celery.beat import SchedulingError


def test_a_broker_outage_is_one_line_and_other_errors_are_whole(caplog: pytest.LogCaptureFixture) -> None:
    beat = logging.getLogger("celery.beat")
    for error in (SchedulingError("no broker"), SchedulingError("no broker"), ZeroDivisionError("a bug")):
        beat.error("Message Error: %s\n%s", error, ["a stack"], exc_info=error)
    outage, bug = caplog.records
    assert (outage.getMessage(), outage.exc_info) == ("no broker", None)
    assert bug.exc_info is not None

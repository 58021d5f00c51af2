"""The log: one JSON object a line, or one line of text for a person who watches; no secret in either."""

from __future__ import annotations

import logging
import time
from collections.abc import MutableMapping, Sequence
from typing import Any

import structlog
from celery.beat import SchedulingError
from opentelemetry import trace
from structlog.stdlib import ProcessorFormatter

from proxyfleet.observability.redaction import redact

REPEAT_SECONDS = 15

Event = MutableMapping[str, Any]


def formatter(kind: str) -> ProcessorFormatter:
    """For Django's LOGGING. ``kind`` is json or text."""
    return ProcessorFormatter(
        foreign_pre_chain=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
        ],
        processors=[
            ProcessorFormatter.remove_processors_meta,
            _add_span,
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            _strike_secrets,
            *(_AS_TEXT if kind == "text" else _AS_JSON),
        ],
    )


def _add_span(_logger: object, _method: str, event: Event) -> Event:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["traceID"] = trace.format_trace_id(context.trace_id)
        event["spanID"] = trace.format_span_id(context.span_id)
    return event


def _strike_secrets(_logger: object, _method: str, event: Event) -> Event:
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = redact(value)
    return event


def _order(_logger: object, _method: str, event: Event) -> Event:
    first = {name: event.pop(name) for name in ("timestamp", "level", "logger", "message")}
    return {**first, **event}


_AS_JSON: Sequence[Any] = (
    structlog.processors.EventRenamer("message"),
    _order,
    structlog.processors.JSONRenderer(ensure_ascii=False),
)
_AS_TEXT: Sequence[Any] = (structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0),)


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

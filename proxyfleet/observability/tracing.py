"""Traces by OpenTelemetry, off unless the environment asks for them: then no exporter is even imported.

The variables are OpenTelemetry's own: OTEL_EXPORTER_OTLP_ENDPOINT (or …_TRACES_ENDPOINT), or
OTEL_TRACES_EXPORTER=console.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from proxyfleet.observability.redaction import redact

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

_tracer = trace.get_tracer("proxyfleet")


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if exporter == "none" or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return exporter == "console" or any(environment.get(name) for name in endpoints)


def start(process: str) -> bool:
    """Trace from now on, if that is wanted; returns whether it is. ``process`` is web, worker, beat or sync.

    For each process that works, after it was forked: a thread sends the spans.
    """
    if not wanted():
        return False
    from proxyfleet.observability import sdk

    sdk.start(process)
    return True


def stop() -> None:
    """Send what was not sent yet: for processes that end without the interpreter's help."""
    shutdown = getattr(trace.get_tracer_provider(), "shutdown", None)
    if shutdown is not None:
        shutdown()


def traced(application: WSGIApplication) -> WSGIApplication:
    """The same, with a span for each request."""
    from proxyfleet.observability import sdk

    return sdk.traced(application)


def is_traced() -> bool:
    """Whether what happens here and now is part of a trace."""
    return trace.get_current_span().get_span_context().is_valid


@contextmanager
def span(name: str, *, kind: SpanKind = SpanKind.INTERNAL, **attributes: str) -> Iterator[trace.Span]:
    """A span around the block; an error that leaves the block is noted by its class and redacted message.

    Costs some microseconds when nothing is traced.
    """
    with _tracer.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            fail(current, error)
            raise


def ended_span(name: str, seconds: float, **attributes: str) -> None:
    """A span of so many seconds that ended just now."""
    ended = time.time_ns()
    began = ended - int(seconds * 1e9)
    _tracer.start_span(name, start_time=began, attributes=attributes).end(ended)


def fail(current: trace.Span, error: Exception) -> None:
    """Note on the span that this is what came of it."""
    if current.is_recording():
        current.set_attribute("error.type", type(error).__name__)
        current.set_status(Status(StatusCode.ERROR, redact(str(error))))

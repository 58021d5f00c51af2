"""A trace goes on where a Celery message arrives."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from celery import Task
from celery.signals import before_task_publish, task_failure, task_postrun, task_prerun
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind

from proxyfleet.observability import tracing

SEND, RUN = "send", "run"

_running: dict[str, tuple[trace.Span, AbstractContextManager[Any]]] = {}
"""By the id of the task."""


def follow() -> None:
    """Name the trace in each message that this process sends, and go on with that of each it works on."""
    before_task_publish.connect(_on_publish)
    task_prerun.connect(_on_prerun)
    task_failure.connect(_on_failure)
    task_postrun.connect(_on_postrun)


def _on_publish(sender: str, headers: dict[str, Any], routing_key: str = "", **_: object) -> None:
    # Ended here, and not once the broker has the message: of one that is away, Celery says nothing to us.
    with tracing.span(f"{SEND} {sender}", kind=SpanKind.PRODUCER, queue=routing_key):
        propagate.inject(headers)


def _on_prerun(task_id: str, task: Task[Any, Any], **_: object) -> None:
    fields = propagate.get_global_textmap().fields
    carried = {field: value for field in fields if (value := getattr(task.request, field, None))}
    span = trace.get_tracer("proxyfleet").start_span(
        f"{RUN} {task.name}", context=propagate.extract(carried), kind=SpanKind.CONSUMER
    )
    activation = trace.use_span(span, end_on_exit=True)
    activation.__enter__()
    _running[task_id] = span, activation


def _on_failure(task_id: str, exception: Exception, **_: object) -> None:
    if (running := _running.get(task_id)) is not None:
        tracing.fail(running[0], exception)


def _on_postrun(task_id: str, **_: object) -> None:
    if (running := _running.pop(task_id, None)) is not None:
        running[1].__exit__(None, None, None)

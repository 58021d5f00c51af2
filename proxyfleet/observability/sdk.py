"""The part of OpenTelemetry that makes and sends spans. Imported only where traces are wanted.

What the libraries that are traced put into a span passes `Redacting` on its way out: no header, no query, no secret.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.urls import Resolver404, resolve
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, Status, TraceState
from opentelemetry.util.types import Attributes

from proxyfleet.conf import settings
from proxyfleet.observability import messages
from proxyfleet.observability.redaction import redact

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

TASKS = frozenset({"fleet.reconcile", "fleet.collect_orphans", "health.check_provider"})
PROBES = frozenset({"health.probe", "health.probe_due"})
PATHS = ("/v1/", "/admin/")

_URLS = frozenset({"http.url", "http.target", "url.full"})
_LEFT_OUT = ("http.request.header.", "http.response.header.", "url.query")


def start(process: str) -> None:
    """Make and send spans from now on, in the name of ``process``."""
    provider = TracerProvider(sampler=Wanted(_sampler_of_the_environment()), resource=_resource(process))
    if os.environ.get("OTEL_TRACES_EXPORTER") == "console":
        console = ConsoleSpanExporter(formatter=lambda span: f"{span.to_json(indent=None)}\n")
        provider.add_span_processor(SimpleSpanProcessor(Redacting(console)))
    else:
        provider.add_span_processor(BatchSpanProcessor(Redacting(OTLPSpanExporter())))
    trace.set_tracer_provider(provider)
    RequestsInstrumentor().instrument()
    messages.follow()


def traced(application: WSGIApplication) -> WSGIApplication:
    return OpenTelemetryMiddleware(application, response_hook=_name_by_route)


class Wanted(Sampler):
    """Leaves out what happens every second and tells nobody anything, with all that follows from it."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._tasks = TASKS | (PROBES if settings().trace_health_probes else frozenset())

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        verb, _, what = name.partition(" ")
        is_message = kind in (SpanKind.PRODUCER, SpanKind.CONSUMER) and verb in (messages.SEND, messages.RUN)
        if (is_message and what not in self._tasks) or (kind is SpanKind.SERVER and not what.startswith(PATHS)):
            return SamplingResult(Decision.DROP)
        return self._sampler.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return f"Wanted({self._sampler.get_description()})"


class Redacting(SpanExporter):
    """Passes on spans without secrets."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([_cleaned(span) for span in spans])

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _cleaned(span: ReadableSpan) -> ReadableSpan:
    description = span.status.description
    return ReadableSpan(
        name=redact(span.name),
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_without_secrets(span.attributes),
        events=[Event(event.name, _without_secrets(event.attributes), event.timestamp) for event in span.events],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code, None if description is None else redact(description)),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _without_secrets(attributes: Attributes) -> dict[str, Any]:
    return {name: _shown(name, value) for name, value in (attributes or {}).items() if not name.startswith(_LEFT_OUT)}


def _shown(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return redact(value.partition("?")[0] if name in _URLS else value)


def _name_by_route(span: trace.Span, environ: WSGIEnvironment, _status: str, _headers: list[tuple[str, str]]) -> None:
    """As few names as there are calls, whatever ids the paths hold."""
    if not span.is_recording():
        return
    try:
        route = f"/{resolve(environ['PATH_INFO']).route}"
    except Resolver404:
        route = "nowhere"
    span.update_name(f"{environ['REQUEST_METHOD']} {route}")
    span.set_attribute("http.route", route)


def _resource(process: str) -> Resource:
    is_named = "OTEL_SERVICE_NAME" in os.environ or SERVICE_NAME in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if is_named else {SERVICE_NAME: f"proxyfleet-{process}"})


def _sampler_of_the_environment() -> Sampler:
    """What OTEL_TRACES_SAMPLER says; a provider alone knows how to read it."""
    return TracerProvider(shutdown_on_exit=False).sampler

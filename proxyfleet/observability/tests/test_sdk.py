"""What becomes a span, and what of it leaves the process."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from wsgiref.util import setup_testing_defaults

import pytest
import requests
from opentelemetry import trace
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.instrumentation.wsgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision
from opentelemetry.trace import SpanKind, Status, StatusCode

from proxyfleet import conf
from proxyfleet.observability import tracing
from proxyfleet.observability.sdk import Redacting, Wanted, _name_by_route

CONSUMER, PRODUCER, SERVER, CLIENT = SpanKind.CONSUMER, SpanKind.PRODUCER, SpanKind.SERVER, SpanKind.CLIENT


class Sent:
    """A provider of traces whose spans are kept as they would be sent."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(Redacting(self._kept)))
        self.tracer = self.provider.get_tracer("tests")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._kept.get_finished_spans()

    def shown(self) -> str:
        return "".join(span.to_json() for span in self.spans)


@pytest.fixture
def sent() -> Iterator[Sent]:
    sent = Sent()
    yield sent
    sent.provider.shutdown()


@pytest.mark.parametrize(
    ("kind", "name", "is_wanted"),
    [
        (PRODUCER, "send fleet.reconcile", True),
        (CONSUMER, "run fleet.collect_orphans", True),
        (CONSUMER, "run health.check_provider", True),
        (PRODUCER, "send health.probe_due", False),
        (CONSUMER, "run health.probe", False),
        (CONSUMER, "run leasing.expire_leases", False),
        (CONSUMER, "run fleet.relist", False),
        (SERVER, "POST /v1/leases", True),
        (SERVER, "GET /admin/", True),
        (SERVER, "GET /metrics", False),
        (SERVER, "GET /static/fleet/admin.css", False),
        (CLIENT, "kubernetes PATCH", True),
    ],
)
def test_what_happens_all_the_time_is_left_out(kind: SpanKind, name: str, *, is_wanted: bool) -> None:
    result = Wanted(ALWAYS_ON).should_sample(None, 1, name, kind)
    assert result.decision is (Decision.RECORD_AND_SAMPLE if is_wanted else Decision.DROP)


def test_probes_are_traced_where_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_TRACE_HEALTH_PROBES", "true")
    conf.settings.cache_clear()
    try:
        result = Wanted(ALWAYS_ON).should_sample(None, 1, "run health.probe_due", CONSUMER)
    finally:
        monkeypatch.undo()
        conf.settings.cache_clear()
    assert result.decision is Decision.RECORD_AND_SAMPLE


@pytest.mark.parametrize(
    ("environment", "is_wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_environment_says_whether_to_trace(environment: dict[str, str], *, is_wanted: bool) -> None:
    assert tracing.wanted(environment) is is_wanted


def test_no_secret_leaves_with_a_span(sent: Sent) -> None:
    attributes = {
        "http.url": "https://user:hush-hush@pve.example/api2/json/x?password=hush-hush",
        "url.query": "q=hush-hush",
        "http.request.header.authorization": ["Bearer hush-hush"],
        "note": "Authorization: Bearer hush-hush",
    }
    with sent.tracer.start_as_current_span("a token=hush-hush", attributes=attributes) as span:
        span.add_event("it said", {"text": "password: hush-hush"})
        span.record_exception(ValueError("no redis://:hush-hush@broker/0"))
        span.set_status(Status(StatusCode.ERROR, "no redis://:hush-hush@broker/0"))
    assert "hush-hush" not in sent.shown()
    assert "https://***@pve.example/api2/json/x" in sent.shown()


def test_a_span_keeps_all_else(sent: Sent) -> None:
    in_span = sent.tracer.start_as_current_span
    with in_span("outer") as outer, in_span("inner", kind=CLIENT, attributes={"number": 3}):
        pass
    inner, outer_sent = sent.spans
    assert inner.parent == outer.get_span_context() == outer_sent.context
    assert (inner.name, inner.kind, dict(inner.attributes or {})) == ("inner", CLIENT, {"number": 3})
    assert inner.start_time is not None
    assert inner.end_time is not None
    assert inner.start_time <= inner.end_time


def test_requests_of_the_drivers_show_neither_headers_nor_queries(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    # An operator may ask the library for headers.
    monkeypatch.setenv("OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_CLIENT_REQUEST", ".*")

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """The spans are looked at."""

    RequestsInstrumentor().instrument(tracer_provider=sent.provider)
    try:
        with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/nodes"
            headers = {"Authorization": "PVEAPIToken=root@pam!x=hush-hush", "Cookie": "a=hush-hush"}
            requests.get(url, params={"q": "hush-hush"}, headers=headers, timeout=30)
            server.shutdown()
    finally:
        RequestsInstrumentor().uninstrument()
    (span,) = sent.spans
    assert (span.attributes or {})["http.url"] == url
    assert "hush-hush" not in sent.shown()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/leases/0191d0a0-0000-7000-8000-000000000000/report", "POST /v1/leases/<str:lease_id>/report"),
        ("/nowhere/at/all", "POST nowhere"),
    ],
)
def test_a_request_is_named_by_its_route(sent: Sent, path: str, name: str) -> None:
    def application(_environ: object, start_response: object) -> list[bytes]:
        assert callable(start_response)
        start_response("200 OK", [])
        return [b""]

    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "QUERY_STRING": "token=hush-hush"}
    setup_testing_defaults(environ)
    traced = OpenTelemetryMiddleware(application, response_hook=_name_by_route, tracer_provider=sent.provider)
    list(traced(environ, lambda *_: lambda _: None))
    (span,) = sent.spans
    assert span.name == name
    assert "hush-hush" not in sent.shown()


def test_an_error_is_noted_by_its_class(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_tracer", sent.tracer)
    with pytest.raises(ZeroDivisionError):
        _fail_in_a_span()
    assert not tracing.is_traced()
    (span,) = sent.spans
    assert dict(span.attributes or {}) == {"provider": "here", "error.type": "ZeroDivisionError"}
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "token=***")
    assert trace.get_current_span() is trace.INVALID_SPAN


def _fail_in_a_span() -> None:
    with tracing.span("it", provider="here"):
        assert tracing.is_traced()
        raise ZeroDivisionError("token=hush-hush")

"""A collector of traces: takes what an OTLP/HTTP exporter sends, and remembers it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue


@dataclass(frozen=True, slots=True)
class Span:
    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, str] = field(hash=False)


class Receiver(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Span] = []
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, name: str) -> list[Span]:
        return [span for span in list(self.spans) if span.name == name]

    def lineage(self, span: Span) -> list[Span]:
        """The span, its parent, and so on; as far as they have arrived."""
        known = {(other.trace_id, other.span_id): other for other in list(self.spans)}
        found = [span]
        while (parent := known.get((span.trace_id, found[-1].parent_id))) is not None:
            found.append(parent)
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces"
        self.server.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _texts(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.server.spans += [
                    Span(
                        service,
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        _texts(span.attributes),
                    )
                    for span in scope.spans
                ]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """What came is remembered."""


def _texts(attributes: Iterator[KeyValue]) -> dict[str, str]:
    return {item.key: str(getattr(item.value, item.value.WhichOneof("value") or "string_value")) for item in attributes}


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        Thread(target=receiver.serve_forever, daemon=True).start()
        yield receiver
        receiver.shutdown()

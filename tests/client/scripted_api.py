"""An API that answers what a test tells it to, over real HTTP, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.client.serving import QuietHandler, serving

Answer = tuple[int, Mapping[str, Any] | None, Mapping[str, str]]
"""Status, body and headers."""

LEASE: Mapping[str, Any] = {
    "leaseID": "018f-lease",
    "createdAt": "2026-01-01T12:00:00Z",
    "expiresAt": "2026-01-01T12:05:00Z",
    "proxy": {"id": "default/a", "url": "http://192.0.2.1:3128", "attributes": {"geo": "eu"}, "egressIP": None},
}
ENDED: Mapping[str, Any] = {
    "status": 410,
    "code": "lease_ended",
    "detail": "The lease is over.",
    "cause": "proxy_replaced",
}


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(slots=True)
class Script:
    """What to answer next, by ``METHOD path``; what is not scripted succeeds."""

    url: str = ""
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def answer(self, call: str, status: int, body: Mapping[str, Any] | None = None, **headers: str) -> None:
        """0 as ``status`` closes the connection without an answer."""
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.setdefault(call, []).append((status, body or {"status": status}, shown))

    def calls(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.asked]

    def wait_for(self, call: str, times: int = 1) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.calls().count(call) >= times, 20), self.calls()


NOTHING: Answer = (204, None, {})
_USUAL: Mapping[str, Answer] = {"POST leases": (201, LEASE, {}), "POST leases/018f-lease/renew": (200, LEASE, {})}


@contextmanager
def scripted_api() -> Iterator[Script]:
    script = Script()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            path = self.path.removeprefix("/v1/")
            with script.changed:
                script.asked.append(Asked(self.command, path, body, dict(self.headers)))
                script.changed.notify_all()
            call = f"{self.command} {path}"
            planned = script.answers.get(call)
            status, answer, headers = planned.pop(0) if planned else _USUAL.get(call, NOTHING)
            if status == 0:
                self.close_connection = True
                return
            content = json.dumps(answer).encode() if answer is not None else b""
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815  the names are http.server's

    with serving(Handler) as url:
        script.url = url
        yield script

"""The HTTP side: who may ask, how fast, what is counted, and what goes wrong on the wire."""

from __future__ import annotations

import json
import socket
import struct
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from urllib.parse import parse_qs, urlsplit

from providers.gcp.tests.standin.accounts import ServiceAccount
from providers.gcp.tests.standin.answers import Json, Refused
from providers.gcp.tests.standin.cloud import Cloud, Request
from providers.gcp.tests.standin.discovery import Method, methods
from providers.tests.backend import Clock


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request."""

    before: Callable[[], None] = lambda: None
    """Runs before the request is carried out; may raise Refused."""
    hang: bool = False
    """Not carried out and never answered."""
    delay: float = 0.0
    """Seconds from the request to the answer, which does come."""
    reset: bool = False
    """The connection breaks after the request was carried out."""
    garble: Callable[[bytes], bytes] = lambda body: body
    """What becomes of the answer on its way."""


def refused(status: int, reason: str, message: str = "", **headers: str) -> Fault:
    def refuse() -> None:
        raise Refused(status, reason, message or reason, headers=headers)

    return Fault(before=refuse)


class RateLimit:
    """So many requests that change something, per window of the cloud's clock."""

    def __init__(self, requests: int, per: timedelta) -> None:
        self.requests, self.per = requests, per
        self.refusals = 0
        self._window: tuple[datetime | None, int] = (None, 0)

    def check(self, now: datetime) -> None:
        began, used = self._window
        if began is None or now - began >= self.per:
            began, used = now, 0
        if used >= self.requests:
            self.refusals += 1
            # Either form is documented, and both have been seen.
            status = 403 if self.refusals % 2 else 429
            raise Refused(status, "rateLimitExceeded", "Quota exceeded for quota metric 'Queries' of service.")
        self._window = (began, used + 1)


class ComputeServer:
    """Compute Engine on a port of this machine, until it is closed."""

    def __init__(self, clock: Clock, account: ServiceAccount) -> None:
        self.cloud = Cloud(clock)
        self.account = account
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        """By method, such as `instances.insert`; taken from the left, one per request."""
        self.calls: Counter[str] = Counter()
        """Requests that came, by method."""
        self.rate_limit: RateLimit | None = None
        self._lock = Lock()
        self._closing = Event()
        server = self

        class Handler(_Handler):
            compute = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads, self._http.block_on_close = True, False
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def answer(self, verb: str, target: str, token: str | None, content: bytes) -> tuple[int, Json, Fault]:
        """Status, body, and the fault that the answer still meets."""
        url = urlsplit(target)
        method, path = _route(verb, url.path)
        query = parse_qs(url.query, keep_blank_values=True, strict_parsing=bool(url.query))
        with self._lock:
            self.calls[method.id] += 1
            fault = self.faults[method.id].popleft() if self.faults[method.id] else Fault()
            if self.rate_limit and verb != "GET":
                self.rate_limit.check(self.cloud.clock())
        self.account.check(token)
        if fault.hang or fault.delay:
            self._closing.wait(fault.delay or None)
        if fault.hang:
            return 503, {}, fault
        fault.before()
        body = json.loads(content) if content else None
        method.check(path, query, body)
        flat = {name: values[0] for name, values in query.items()}
        return 200, self.cloud.carry_out(Request(method.id, path, flat, body)), fault


def _route(verb: str, path: str) -> tuple[Method, dict[str, str]]:
    for method in methods():
        if (parameters := method.match(verb, path)) is not None:
            return method, parameters
    raise Refused(404, "notFound", f"{verb} {path} is no method that may be called")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    compute: ComputeServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is http.server's
        """Silent: the tests say what they saw."""

    def _answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault, extra = Fault(), {}
        try:
            status, body, fault = self.compute.answer(
                self.command, self.path, self.headers.get("Authorization"), content
            )
        except Refused as refusal:
            status, body, extra = refusal.status, refusal.body, refusal.headers
        if fault.reset:
            # Lingering for no time at all makes the close a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        answer = fault.garble(json.dumps(body).encode())
        head = f"HTTP/1.1 {status} {self.responses[status][0]}\r\nContent-Type: application/json; charset=UTF-8\r\n"
        head += "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in extra.items())
        # In one write: two would wait for each other's acknowledgement.
        self.wfile.write(f"{head}Content-Length: {len(answer)}\r\n\r\n".encode() + answer)

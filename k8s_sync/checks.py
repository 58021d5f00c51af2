"""``/healthz``, ``/readyz`` and ``/metrics`` of a process that serves nothing else."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from django.db import connection

from proxyfleet.local.addresses import Address
from proxyfleet.observability import exposition, listener

SILENCE_SECONDS = 10


@contextmanager
def answering(
    address: Address, *, alive: Callable[[], bool], problems: Callable[[], Mapping[str, str]]
) -> Iterator[Address]:
    """Answer there while the block runs. Raises OSError when something else listens there."""

    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE_SECONDS

        def do_GET(self) -> None:
            match self.path:
                case "/healthz":
                    self._answer(HTTPStatus.OK if alive() else HTTPStatus.SERVICE_UNAVAILABLE, {})
                case "/readyz":
                    try:
                        found = problems()
                    finally:
                        connection.close()
                    self._answer(HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK, found)
                case exposition.PATH:
                    listener.answer(self)
                case _:
                    self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, status: HTTPStatus, found: Mapping[str, str]) -> None:
            body = json.dumps({"status": "ok" if status is HTTPStatus.OK else "unready", **found}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is its base's
            """An orchestrator asks every few seconds; that is no news."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        daemon_threads = True

    with Server((address.host, address.port), Handler) as server:
        thread = Thread(target=server.serve_forever, name="checks", daemon=True)
        thread.start()
        try:
            yield Address(address.host, server.server_port)
        finally:
            server.shutdown()
            thread.join()

"""``/metrics`` of processes that serve nothing else: workers and beat."""

from __future__ import annotations

import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from proxyfleet.conf import settings
from proxyfleet.local.addresses import Address
from proxyfleet.observability import exposition, slots

SILENCE_SECONDS = 10


def start_counting() -> None:
    """For the start of a process. Exits when the metrics folder can't be used."""
    try:
        slots.join()
    except OSError as error:
        sys.exit(f"proxyfleet can't start:\nPROXYFLEET_METRICS_DIR: {slots.folder()} can't be used: {error}")


def start_answering() -> None:
    """Answer where PROXYFLEET_METRICS_ADDR says, if it does. Exits when that can't be done."""
    text = settings().metrics_addr
    if text is None:
        return
    try:
        listen(Address.parse(text))
    except (OSError, ValueError) as error:
        sys.exit(f"proxyfleet can't start:\nPROXYFLEET_METRICS_ADDR: can't listen on {text}: {error}")


def listen(address: Address) -> Address:
    """Answer there from a thread that ends with the process. Raises OSError when something else listens there."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        daemon_threads = True

    server = Server((address.host, address.port), _Handler)
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return Address(address.host, server.server_port)


class _Handler(BaseHTTPRequestHandler):
    timeout = SILENCE_SECONDS

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == exposition.PATH:
            answer(self)
        else:
            self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is its base's
        """Prometheus asks every few seconds; that is no news."""


def answer(request: BaseHTTPRequestHandler) -> None:
    """Send what this process and its children counted."""
    page = exposition.page(
        authorization=request.headers.get("Authorization", ""), accept=request.headers.get("Accept", "")
    )
    request.send_response(page.status)
    request.send_header("Content-Type", page.content_type)
    request.send_header("Content-Length", str(len(page.body)))
    request.end_headers()
    request.wfile.write(page.body)

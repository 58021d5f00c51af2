"""What a crawl needs on one machine: proxies whose targets see different addresses, and a site that bans them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@contextmanager
def egress_proxies(count: int) -> Iterator[list[tuple[str, int]]]:
    """HTTP proxies on loopback addresses of their own, which are also the addresses that they connect from."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> list[asyncio.Server]:
        return [await _listen(f"127.0.1.{number + 1}") for number in range(count)]

    async def stop(servers: list[asyncio.Server]) -> None:
        for server in servers:
            server.close()
        await asyncio.sleep(0.05)  # who has just connected has a handler by then, which closes what it got
        handlers = asyncio.all_tasks() - {asyncio.current_task()}
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await asyncio.sleep(0.05)  # transports close their sockets on later turns of the loop

    servers = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield [server.sockets[0].getsockname()[:2] for server in servers]
    finally:
        asyncio.run_coroutine_threadsafe(stop(servers), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _listen(address: str) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await _forward(reader, writer, address)
            await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, address)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
    """One tunnel, or one plain request: the connection ends with it."""
    head = await reader.readuntil(b"\r\n\r\n")
    method, url, version = head.split(b"\r\n", 1)[0].decode().split(" ")
    target = urlsplit(f"//{url}" if method == "CONNECT" else url)
    upstream, to_target = await asyncio.open_connection(target.hostname, target.port or 80, local_addr=(address, 0))
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        path = target._replace(scheme="", netloc="").geturl() or "/"
        lines = [line for line in head.split(b"\r\n")[1:-2] if not line.lower().startswith((b"proxy-", b"connection:"))]
        to_target.write(b"\r\n".join([f"{method} {path} {version}".encode(), *lines, b"Connection: close", b"", b""]))
    both_ways = [asyncio.create_task(_copy(reader, to_target)), asyncio.create_task(_copy(upstream, writer))]
    try:
        await asyncio.wait(both_ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one_way in both_ways:
            one_way.cancel()
        to_target.transport.abort()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        sink.write(data)
        await sink.drain()


@dataclass(slots=True)
class Site:
    """Pages that link to the next ones. An address that asks for too many is banned for a while."""

    pages: int
    allowed: int
    ban_seconds: float
    url: str = ""
    served: Counter[str] = field(default_factory=Counter)
    """Pages by the address that got them."""
    refused: Counter[str] = field(default_factory=Counter)
    _tally: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    _banned_until: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admits(self, address: str) -> bool:
        with self._lock:
            if time.monotonic() < self._banned_until.get(address, 0):
                self.refused[address] += 1
                return False
            self._tally[address] += 1
            if self._tally[address] > self.allowed:
                self._tally[address] = 0
                self._banned_until[address] = time.monotonic() + self.ban_seconds
                self.refused[address] += 1
                return False
            self.served[address] += 1
            return True

    def page(self, number: int) -> bytes:
        below = [2 * number + 1, 2 * number + 2]
        links = " ".join(f'<a href="/{page}">{page}</a>' for page in below if page < self.pages)
        return f"<!doctype html><title>page {number}</title>{links}".encode()


@contextmanager
def site_that_bans(*, pages: int = 1, allowed: int = 1_000_000, ban_seconds: float = 0) -> Iterator[Site]:
    site = Site(pages, allowed, ban_seconds)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = 200 if site.admits(self.client_address[0]) else 429
            body = site.page(int(self.path.strip("/") or 0)) if status == 200 else b"Too many requests"
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is http.server's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

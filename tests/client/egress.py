"""What a crawl needs on one machine: proxies whose targets see different addresses, and a site that bans them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.client.serving import QuietHandler, serving


@contextmanager
def egress_proxies(count: int) -> Iterator[list[tuple[str, int]]]:
    """HTTP proxies on loopback addresses of their own, which are also the addresses that they connect from."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    proxies = [_EgressProxy(f"127.0.1.{number + 1}") for number in range(count)]
    try:
        yield [asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(10) for proxy in proxies]
    finally:
        for proxy in proxies:
            asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _EgressProxy:
    """Serves one tunnel, or one plain request, a connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connections: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> tuple[str, int]:
        self._server = await asyncio.start_server(self._accept, self._address)
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        """Nothing of it is open when it returns."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._connections:
            connection.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._connections), return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """No coroutine, which would be known only once it begins."""
        self._connections.append(writer)
        self._tasks.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._forward(reader, writer)
        writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, url, version = head.split(b"\r\n", 1)[0].decode().split(" ")
        target = urlsplit(f"//{url}" if method == "CONNECT" else url)
        upstream, to_target = await asyncio.open_connection(
            target.hostname, target.port or 80, local_addr=(self._address, 0)
        )
        self._connections.append(to_target)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = target._replace(scheme="", netloc="").geturl() or "/"
            hop_by_hop = (b"proxy-", b"connection:")
            lines = [line for line in head.split(b"\r\n")[1:-2] if not line.lower().startswith(hop_by_hop)]
            first = f"{method} {path} {version}".encode()
            to_target.write(b"\r\n".join([first, *lines, b"Connection: close", b"", b""]))
        both_ways = [asyncio.create_task(_copy(reader, to_target)), asyncio.create_task(_copy(upstream, writer))]
        try:
            await asyncio.wait(both_ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one_way in both_ways:
                one_way.cancel()
            await asyncio.gather(*both_ways, return_exceptions=True)
            to_target.close()


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

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802  the name is http.server's
            status = 200 if site.admits(self.client_address[0]) else 429
            body = site.page(int(self.path.strip("/") or 0)) if status == 200 else b"Too many requests"
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as url:
        site.url = url
        yield site

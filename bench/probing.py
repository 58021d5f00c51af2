"""What a probe costs, database and all, against the least that asyncio can fetch the same through a proxy with.

Run beside the stage's servers, in a process with the product's settings; prints JSON. What counts is the processor time
of this process: the proxies, which are their own target, run in another.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import django
import trustme

HOST = "localhost"
CONCURRENCY = 256
INTERVAL = timedelta(seconds=30)
START = datetime(2026, 1, 1, tzinfo=UTC)


def serve(certificate: Path, started: Connection) -> None:
    """A proxy that speaks for the target itself, at the far end of its tunnel."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await writer.drain()
            await writer.start_tls(tls)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await writer.drain()
        except (OSError, EOFError, asyncio.IncompleteReadError):
            pass  # The client has what it wanted.
        finally:
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
        started.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def fetch_all(port: int, count: int, tls: ssl.SSLContext) -> None:
    """The bare loop: CONNECT, TLS, GET and the answer's head, with nothing around it."""
    numbers = iter(range(count))

    async def take_turns() -> None:
        for _ in numbers:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            await writer.start_tls(tls, server_hostname=HOST)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(take_turns())


def measure(proxies: int, rounds: int, folder: Path) -> list[dict[str, float]]:
    django.setup()
    # Models can be imported only now.
    from health import engine
    from health.probes import tls_context
    from proxyfleet.fleet.models import Proxy

    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    tls = tls_context(folder / "ca.pem")
    engine._shared_tls = lambda: tls  # type: ignore[assignment]
    ours, theirs = multiprocessing.Pipe()
    peer = multiprocessing.get_context("spawn").Process(target=serve, args=(folder / "server.pem", theirs), daemon=True)
    peer.start()
    port = ours.recv()
    Proxy.objects.bulk_create(
        Proxy(
            name=f"p{number}",
            mode="External",
            endpoint_host="127.0.0.1",
            address="127.0.0.1",
            address_port=port,
            instance_serial=1,
            health_url=f"https://{HOST}/",
            next_reconcile_at=None,
        )
        for number in range(proxies)
    )
    now = START
    took = []

    def timed(work: Callable[[], int]) -> tuple[float, float]:
        began, cpu = time.monotonic(), time.process_time()
        count = work()
        return (time.process_time() - cpu) / count, count / (time.monotonic() - began)

    def fetch() -> int:
        asyncio.run(fetch_all(port, proxies, tls))
        return proxies

    engine.probe_due("external", now)  # the verdicts: from here on the fleet is at rest
    for _ in range(rounds):
        bare, _ = timed(fetch)
        now += INTERVAL
        cost, rate = timed(partial(engine.probe_due, "external", now))
        took.append({"bare": bare, "probe": cost, "rate": rate})
    peer.kill()
    if healthy := Proxy.objects.exclude(verdict="healthy").count():
        raise RuntimeError(f"{healthy} proxies are not healthy")
    return took


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        sys.stdout.write(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), Path(home))))

"""Proxies in the database, and peers that answer for them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from health.tests.peers import Script, serving
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.phases import Phase
from proxyfleet.fleet.spec import Mode


def add_proxies(count: int = 1, **columns: Any) -> list[Proxy]:
    """Reachable External proxies that no probe has seen."""
    base: dict[str, Any] = {
        "mode": Mode.EXTERNAL.value,
        "endpoint_host": "127.0.0.1",
        "address": "127.0.0.1",
        "address_port": 1,
        "instance_serial": 1,
        "phase": Phase.PENDING.value,
        "health_url": "http://target.example/",
        "next_reconcile_at": None,
    }
    taken = Proxy.objects.count()
    proxies = [Proxy(name=f"p{taken + number}", **base | columns) for number in range(count)]
    return Proxy.objects.bulk_create(proxies)


@contextlib.contextmanager
def peer(script: Script, *, tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[int]:
    """A proxy or a target that behaves as ``script``, beside the test; gives its port."""
    started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        ending = asyncio.Event()
        async with serving(script, tls=tls, port=port) as server:
            started.set_result((server.port, asyncio.get_running_loop(), ending))
            await ending.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    listening, loop, ending = started.result(timeout=30)
    try:
        yield listening
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()

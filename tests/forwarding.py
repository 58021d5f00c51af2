"""A way to a server that listens where others can't reach it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxyfleet.local.addresses import Address


@contextmanager
def forwarding(target: Address | Path, *, host: str = "127.0.0.1") -> Iterator[Address]:
    """Where, on ``host``, every connection goes on to ``target``: an address, or the path of a socket."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="forwarding")
    thread.start()

    server = asyncio.run_coroutine_threadsafe(_serve(target, host), loop).result()
    try:
        yield Address(host, server.sockets[0].getsockname()[1])
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _serve(target: Address | Path, host: str) -> asyncio.Server:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            if isinstance(target, Path):
                there, back = await asyncio.open_unix_connection(target)
            else:
                there, back = await asyncio.open_connection(target.host, target.port)
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        writer.close()

    return await asyncio.start_server(forward, host, 0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def _end(server: asyncio.Server) -> None:
    """Its connections too: nobody needs them any more."""
    server.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

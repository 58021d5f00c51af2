"""Peers that probes meet: a proxy and a target whose every misdeed is a small script."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

Script = Callable[["Peer"], Awaitable[None]]

CONSENT = b"HTTP/1.1 200 Connection established\r\n\r\n"


@dataclass
class Peer:
    """The server's end of one connection, with what a script may do to it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heads: list[bytes] = field(default_factory=list)
    """Request heads read so far, on all connections of the server."""

    async def read_head(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        return head

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def wait_for_end(self) -> None:
        while await self.reader.read(65536):
            pass

    async def relay(self, host: str, port: int) -> None:
        """Pass bytes both ways until either side ends."""
        far_reader, far_writer = await asyncio.open_connection(host, port)
        pumps = [
            asyncio.create_task(_pump(self.reader, far_writer)),
            asyncio.create_task(_pump(far_reader, self.writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            far_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    # A TLS transport has no half close; the relay's end closes it.
    if writer.can_write_eof():
        writer.write_eof()


@dataclass(frozen=True)
class Server:
    port: int
    heads: list[bytes]
    connections: Mapping[asyncio.Task[None], asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def serving(
    script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Server]:
    """Run ``script`` on every connection. Its end closes the connection; the context's end cancels what still runs."""
    heads: list[bytes] = []
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            await script(Peer(reader, writer, heads))
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        connections[task] = writer
        task.add_done_callback(connections.pop)

    server = await asyncio.start_server(accept, host, port, ssl=tls, backlog=512)
    try:
        yield Server(server.sockets[0].getsockname()[1], heads, connections)
    finally:
        server.close()
        for task, writer in list(connections.items()):
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0.01)  # transports close their sockets on later turns of the loop


def answer(data: bytes) -> Script:
    """Read a request, answer with these bytes, close."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(data)

    return script


def answer_and_stay(data: bytes) -> Script:
    """Read a request, answer with these bytes, then say nothing more and stay connected."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(data)
        await peer.wait_for_end()

    return script


def answer_forever(start: bytes, filler: bytes) -> Script:
    """Read a request and answer without end."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(start)
        while True:
            await peer.send(filler)
            await asyncio.sleep(0)  # `drain` alone gives no way to others while the socket takes more

    return script


def drip(data: bytes, *, seconds_per_byte: float = 1.0) -> Script:
    """Read a request and answer a byte at a time."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        for position in range(len(data)):
            await peer.send(data[position : position + 1])
            await asyncio.sleep(seconds_per_byte)

    return script


async def reset_at_once(peer: Peer) -> None:
    peer.reset()


async def reset_after_request(peer: Peer) -> None:
    await peer.read_head()
    peer.reset()


async def close_at_once(peer: Peer) -> None:
    return


async def close_after_request(peer: Peer) -> None:
    await peer.read_head()


async def half_close_after_request(peer: Peer) -> None:
    await peer.read_head()
    peer.writer.write_eof()
    await peer.wait_for_end()


async def stay_silent(peer: Peer) -> None:
    await peer.wait_for_end()


def tunnel(*, consent: bytes = CONSENT) -> Script:
    """A proxy that does its work: CONNECT, consent, relay."""

    async def script(peer: Peer) -> None:
        head = await peer.read_head()
        host, _, port = head.split()[1].decode().rpartition(":")
        await peer.send(consent)
        await peer.relay(host.strip("[]"), int(port))

    return script


def consent_then(data: bytes) -> Script:
    """Grant the tunnel, then send these bytes in place of the target's TLS, and stay."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(CONSENT)
        await peer.reader.read(1)  # the start of the client's TLS hello
        await peer.send(data)
        await peer.wait_for_end()

    return script


async def consent_then_close(peer: Peer) -> None:
    await peer.read_head()
    await peer.send(CONSENT)
    await peer.reader.read(65536)


async def consent_then_reset(peer: Peer) -> None:
    await peer.read_head()
    await peer.send(CONSENT)
    await peer.reader.read(1)
    peer.reset()

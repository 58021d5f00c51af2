"""Byte streams that a probe pulls from: a socket, and TLS on top of one.

They stand on ``loop.sock_*`` and ``ssl.MemoryBIO`` rather than on transports: nothing is read that was not asked for,
so a peer can't fill memory, and closing the socket is all the cleaning there is, also after a cancellation.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Protocol

_CHUNK_BYTES = 16 * 1024


class HangUpError(Exception):
    """The peer closed the connection where an answer was due."""


class FloodError(Exception):
    """The peer sent more than a probe ever needs."""


class Stream(Protocol):
    async def send(self, data: bytes) -> None: ...

    async def receive(self) -> bytes:
        """Some bytes, or none once the peer sends no more."""
        ...


class SocketStream:
    """A connected non-blocking socket, from which at most ``budget`` bytes are ever read.

    The budget also keeps the loop fair: reading what is already there never gives way to other tasks.
    """

    def __init__(self, sock: socket.socket, *, budget: int) -> None:
        self._sock = sock
        self._budget = budget
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def receive(self) -> bytes:
        if self._budget <= 0:
            raise FloodError
        data = await self._loop.sock_recv(self._sock, _CHUNK_BYTES)
        self._budget -= len(data)
        return data


class TLSStream:
    """The client's side of TLS over ``lower``."""

    def __init__(self, lower: Stream, *, early: bytes, context: ssl.SSLContext, server_hostname: str) -> None:
        """``early`` are bytes of the peer that were already read from ``lower``."""
        self._lower = lower
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._incoming.write(early)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)

    async def handshake(self) -> None:
        """Raises ssl.SSLError when the peer does not speak TLS or its certificate is not trusted.

        Our last flight stays in the buffer and leaves with the first ``send``: one packet less.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    raise HangUpError from None
            else:
                return

    async def send(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def receive(self) -> bytes:
        while True:
            try:
                return self._tls.read(_CHUNK_BYTES)
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLWantReadError:
                if not await self._fill():
                    return b""

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await self._lower.send(data)

    async def _fill(self) -> bool:
        data = await self._lower.receive()
        self._incoming.write(data)
        return bool(data)

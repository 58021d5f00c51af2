from __future__ import annotations

import asyncio
import socket

import pytest

from health.streams import FloodError, SocketStream


def test_no_more_than_the_budget_is_read() -> None:
    """Also when the bytes are there already, so that reading them would never give way to a deadline."""

    async def run() -> int:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(0)
            theirs.settimeout(0)
            theirs.send(b"x" * 100_000)
            stream = SocketStream(ours, budget=20_000)
            received = [await stream.receive() for _ in range(2)]
            with pytest.raises(FloodError):
                await stream.receive()
            return sum(map(len, received))

    assert asyncio.run(run()) == 2 * 16 * 1024

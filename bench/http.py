"""A client that costs little beside the server it measures: raw sockets, kept alive, one thread.

It knows just enough of HTTP for our own server: answers have a Content-Length or no body.
"""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from proxyfleet.local.addresses import Address

Script: TypeAlias = Generator[bytes, bytes, None]
"""What one connection says: yields a request, is sent the answer, and so on for ever."""

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"


class Refused(Exception):
    """The server answered, but not what was measured."""


def request(method: str, path: str, token: str, body: object = None) -> bytes:
    """A whole request, to be made once and sent often."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", "Accept: */*"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


def expect(answer: bytes, status: bytes) -> None:
    """Raises Refused when the answer has another status."""
    if answer[9:12] != status:
        raise Refused(answer.decode(errors="replace"))


def body_of(answer: bytes) -> Any:
    return json.loads(answer.partition(_END_OF_HEAD)[2])


class Connection:
    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection((address.host, address.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> bytes:
        answer = self._socket.recv(65_536)
        while not _is_whole(answer):
            more = self._socket.recv(1 << 20)
            if not more:
                raise Refused(f"The server hung up after {answer!r}.")
            answer += more
        return answer

    def exchange(self, request: bytes) -> bytes:
        self.send(request)
        return self.receive()

    def timed(self, request: bytes) -> tuple[bytes, float]:
        """The answer, and the seconds it took."""
        begin = time.perf_counter()
        answer = self.exchange(request)
        return answer, time.perf_counter() - begin


def _is_whole(answer: bytes) -> bool:
    end = answer.find(_END_OF_HEAD)
    if end < 0:
        return False
    length = _LENGTH.search(answer, 0, end)
    return length is None or len(answer) >= end + len(_END_OF_HEAD) + int(length[1])


@dataclass(frozen=True, slots=True)
class Rate:
    per_second: float
    """Answers."""
    client_microseconds: float
    """CPU of this client for each of them, which the server on the same machine does not get."""


def saturate(address: Address, script: Callable[[], Script], *, connections: int, seconds: float) -> Rate:
    """Have so many connections go through the script at once, each asking again as soon as it is answered."""
    open_ones = {}
    poller = select.epoll()
    for _ in range(connections):
        connection = Connection(address)
        talk = script()
        open_ones[connection.fileno()] = (connection, talk)
        poller.register(connection, select.EPOLLIN)
        connection.send(next(talk))
    answers, cpu, begin = 0, time.process_time(), time.perf_counter()
    end = begin + seconds
    while time.perf_counter() < end:
        for number, _ in poller.poll(1):
            connection, talk = open_ones[number]
            connection.send(talk.send(connection.receive()))
            answers += 1
    took, cpu = time.perf_counter() - begin, time.process_time() - cpu
    poller.close()
    for connection, _ in open_ones.values():
        connection.receive()
        connection.close()
    return Rate(answers / took, cpu / answers * 1e6)

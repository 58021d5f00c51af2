"""The lines of many programs as one stream, each behind the name of the program it is from."""

from __future__ import annotations

import os
import select
from collections.abc import Collection, Iterable
from typing import IO

COLOURS = (36, 32, 33, 35, 34, 31)
LONGEST_LINE = 1 << 16
"""Bytes after which a line without an end is printed as it is."""


class Output:
    """Writes to ``stream``; in colour when that is a terminal and NO_COLOR is unset."""

    def __init__(self, stream: IO[bytes], names: Iterable[str], *, plain: Collection[str] = ()) -> None:
        """``plain`` are the names whose lines are printed as they are."""
        self._stream = stream
        self._refused = False
        self._hangup = select.poll()
        self._hangup.register(stream, 0)  # that a terminal was closed, or a pipe has no reader, is told unasked
        names = list(names)
        width = max(map(len, names), default=0)
        coloured = stream.isatty() and not os.environ.get("NO_COLOR")
        self._prefixes = {name: f"{name:<{width}} | ".encode() for name in names}
        if coloured:
            for place, name in enumerate(names):
                self._prefixes[name] = f"\x1b[{COLOURS[place % len(COLOURS)]}m{name:<{width}} |\x1b[0m ".encode()
        self._prefixes |= dict.fromkeys(plain, b"")

    @property
    def reader_is_gone(self) -> bool:
        """Is there nobody left who could read, be it that nothing was printed since?"""
        return self._refused or bool(self._hangup.poll(0))

    def say(self, name: str, text: str) -> None:
        self.print(name, [text.encode()])

    def print(self, name: str, lines: Iterable[bytes]) -> None:
        try:
            self._stream.writelines(self._prefixes[name] + line + b"\n" for line in lines)
            self._stream.flush()
        except OSError:  # `make run | head`, or the terminal was closed
            self._refused = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


class Lines:
    """Cuts what comes from a pipe into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines if len(self._rest) < LONGEST_LINE else lines + self.finish()

    def finish(self) -> list[bytes]:
        lines, self._rest = [self._rest] if self._rest else [], b""
        return lines

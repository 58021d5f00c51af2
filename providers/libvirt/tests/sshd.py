"""An SSH server in this process, which forwards a unix socket, or runs the helper in its stead, to an echo."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_FAILED_CONNECT_FAILED,
    OPEN_SUCCEEDED,
)

from providers.libvirt.ssh import Target


class Sshd:
    """Listens on loopback. What it does is set by its attributes, before a client comes."""

    def __init__(self, *host_keys: paramiko.PKey, accepts: paramiko.PKey) -> None:
        self.host_keys: Sequence[paramiko.PKey] = host_keys
        self.accepts = accepts
        self.forwards = True
        self.runs_helper = True
        self.commands: list[bytes] = []
        self._transports: list[paramiko.Transport] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def target(self, key_file: Path, known_hosts_file: Path | None) -> Target:
        return Target("host1", "127.0.0.1", self.port, "libvirt", key_file, known_hosts_file)

    def known_hosts(self, *keys: paramiko.PKey) -> str:
        return "".join(f"[127.0.0.1]:{self.port} {key.get_name()} {key.get_base64()}\n" for key in keys)

    def drop_connections(self) -> None:
        for transport in self._transports:
            transport.close()
        self._transports.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        self.drop_connections()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            for key in self.host_keys:
                transport.add_server_key(key)
            self._transports.append(transport)
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):  # the client refused and went
                transport.start_server(server=_Server(self, transport))


class _Server(paramiko.ServerInterface):
    def __init__(self, sshd: Sshd, transport: paramiko.Transport) -> None:
        self._sshd = sshd
        self._transport = transport

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL if key == self._sshd.accepts else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if kind == "session" and self._sshd.runs_helper:
            return OPEN_SUCCEEDED
        if kind != "direct-streamlocal@openssh.com":
            return OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED
        if not self._sshd.forwards:
            return OPEN_FAILED_CONNECT_FAILED
        threading.Thread(target=self._accept_and_echo, daemon=True).start()
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._sshd.commands.append(command)
        threading.Thread(target=_echo, args=(channel,), daemon=True).start()
        return True

    def _accept_and_echo(self) -> None:
        channel = self._transport.accept(5)
        if channel is not None:
            _echo(channel)


def _echo(channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        while data := channel.recv(1 << 16):
            channel.sendall(data)
    channel.close()

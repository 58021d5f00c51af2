"""An SSH connection to a host: the key and the pinned host keys are read when they are used."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import paramiko
from paramiko.channel import Channel
from paramiko.common import cMSG_CHANNEL_OPEN
from paramiko.message import Message
from paramiko.pkey import UnknownKeyType

from providers.errors import AuthenticationFailed, Unavailable
from providers.libvirt.errors import HostKeyMismatch, KeyUnusable, SSHHandshakeFailed, Timeout, Unreachable

DIAL_SECONDS = 10.0
"""Each step of a dial is given this long: the connection, the handshake, the login."""

CHANNEL_SECONDS = 10.0
UNACKNOWLEDGED_SECONDS = 20
"""A peer that acknowledges nothing for this long is dead: the kernel would go on for a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where and as whom to log in."""

    name: str
    address: str
    port: int
    user: str
    key_file: Path
    known_hosts_file: Path | None
    """None accepts any host key: the entry says insecureIgnoreHostKey."""

    @property
    def known_as(self) -> str:
        """How OpenSSH writes the host in known_hosts."""
        return self.address if self.port == 22 else f"[{self.address}]:{self.port}"


class Transport(paramiko.Transport):
    """paramiko opens no ``direct-streamlocal@openssh.com`` channels (paramiko#544): its own steps, another payload."""

    def open_socket(self, path: str, *, timeout: float = CHANNEL_SECONDS) -> Channel:
        """A channel to the unix socket ``path`` of the host. Raises SSHException."""
        if not self.is_active():
            raise paramiko.SSHException("the SSH session has ended")
        internals: Any = self  # that of paramiko has no types
        with self.lock:
            window = internals._sanitize_window_size(None)
            packet = internals._sanitize_packet_size(None)
            number = internals._next_channel()
            request = Message()
            request.add_byte(cMSG_CHANNEL_OPEN)
            request.add_string("direct-streamlocal@openssh.com")
            request.add_int(number)
            request.add_int(window)
            request.add_int(packet)
            request.add_string(path)
            request.add_string("")  # reserved by the protocol, as is the number
            request.add_int(0)
            channel: Any = Channel(number)
            internals._channels.put(number, channel)
            self.channel_events[number] = answered = threading.Event()
            self.channels_seen[number] = True
            channel._set_transport(self)
            channel._set_window(window, packet)
        internals._send_user_message(request)
        deadline = time.monotonic() + timeout
        while not answered.wait(0.1):
            if not self.is_active():
                break
            if time.monotonic() > deadline:
                raise paramiko.SSHException("the host did not answer a channel request in time")
        if internals._channels.get(number) is None or not answered.is_set():
            raise self.get_exception() or paramiko.SSHException("the host opened no channel")
        return cast("Channel", channel)


def dial(target: Target) -> Transport:
    """Connect and log in. Raises a ProviderError that names the step that failed."""
    key = load_key(target.key_file)
    pinned = None if target.known_hosts_file is None else load_host_keys(target)
    transport = Transport(_connect(target))
    try:
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = DIAL_SECONDS
        _shake_hands(transport, target, pinned)
        _log_in(transport, target, key)
    except BaseException:
        transport.close()
        raise
    return transport


def load_key(path: Path) -> paramiko.PKey:
    """Raises Unavailable when the file is not there yet, KeyUnusable when no key can be had from it."""
    try:
        path.open("rb").close()
        return paramiko.PKey.from_path(path)
    except OSError as error:
        raise Unavailable(
            "the SSH key of the hosts can't be read yet", detail=f"sshKeyFile: {path}: {error.strerror}"
        ) from error
    except (paramiko.SSHException, UnknownKeyType, ValueError, TypeError) as error:
        # The text of these errors may quote the key.
        detail = f"sshKeyFile: {path} holds no private key that can be used without a passphrase"
        raise KeyUnusable("the SSH key of the hosts can't be used", detail=detail) from error


def load_host_keys(target: Target) -> list[paramiko.PKey]:
    """The keys that known_hosts pins for this host. Raises Unavailable, KeyUnusable, or HostKeyMismatch without any."""
    path = target.known_hosts_file
    assert path is not None
    try:
        known = paramiko.HostKeys()
        known.load(str(path))
    except OSError as error:
        detail = f"knownHostsFile: {path}: {error.strerror}"
        raise Unavailable("the known hosts can't be read yet", detail=detail) from error
    except (paramiko.SSHException, ValueError) as error:
        detail = f"knownHostsFile: {path}: {error}"
        raise KeyUnusable("the known hosts can't be used", detail=detail) from error
    keys = known.lookup(target.known_as)
    if not keys:
        raise HostKeyMismatch(
            f"no key of host {target.name} is known", detail=f"knownHostsFile: {path} has no line for {target.known_as}"
        )
    return list(keys.values())


def _connect(target: Target) -> socket.socket:
    try:
        connection = socket.create_connection((target.address, target.port), DIAL_SECONDS)
    except TimeoutError as error:
        raise Timeout(f"host {target.name} does not answer", detail=f"{target.known_as}: {error}") from error
    except OSError as error:
        raise Unreachable(f"host {target.name} can't be reached", detail=f"{target.known_as}: {error}") from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_SECONDS * 1000)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return connection


def _shake_hands(transport: Transport, target: Target, pinned: Sequence[paramiko.PKey] | None) -> None:
    if pinned is not None:
        # A host with several keys shows the type that we like best: like only those that can be compared.
        options = transport.get_security_options()
        types = {key.get_name() for key in pinned}
        options.key_types = [
            kind for kind in options.key_types if kind in types or (kind.startswith("rsa-sha2-") and "ssh-rsa" in types)
        ]
    try:
        transport.start_client(timeout=DIAL_SECONDS)
        shown = transport.get_remote_server_key()
    except paramiko.ssh_exception.IncompatiblePeer as error:
        raise HostKeyMismatch(
            f"host {target.name} shows no key of a pinned type", detail=f"{target.known_as}: {error}"
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise SSHHandshakeFailed(
            f"host {target.name} made no SSH session", detail=f"{target.known_as}: {error or type(error).__name__}"
        ) from error
    if pinned is not None and shown not in pinned:
        raise HostKeyMismatch(
            f"host {target.name} shows another key than the pinned one",
            detail=f"{target.known_as} shows {shown.get_name()} {shown.fingerprint}",
        )


def _log_in(transport: Transport, target: Target, key: paramiko.PKey) -> None:
    try:
        transport.auth_publickey(target.user, key)
    except paramiko.AuthenticationException as error:
        raise AuthenticationFailed(
            f"host {target.name} does not accept the SSH key", detail=f"{target.user}@{target.known_as}: {error}"
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise SSHHandshakeFailed(
            f"host {target.name} ended the SSH session during login", detail=f"{target.known_as}: {error}"
        ) from error
    transport.set_keepalive(10)

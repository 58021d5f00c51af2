"""The way to a host, against a real SSH server: what passes, what is refused and why, and that nothing is left."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import paramiko
import pytest

from providers.errors import AuthenticationFailed, ProviderError, Unavailable
from providers.libvirt import ssh
from providers.libvirt.errors import HostKeyMismatch, KeyUnusable, SSHHandshakeFailed, Unreachable
from providers.libvirt.tests.sshd import Sshd
from providers.libvirt.tunnel import HELPER, Bridge, Tunnel

SOCKET = "/run/libvirt/libvirt-sock"
CLIENT_KEY = paramiko.ECDSAKey.generate()
HOST_KEY = paramiko.ECDSAKey.generate()
RSA_HOST_KEY = paramiko.RSAKey.generate(2048)


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    server = Sshd(HOST_KEY, RSA_HOST_KEY, accepts=CLIENT_KEY)
    yield server
    server.close()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "id"
    CLIENT_KEY.write_private_key_file(str(path))
    return path


@pytest.fixture
def known_hosts(tmp_path: Path, sshd: Sshd) -> Path:
    path = tmp_path / "known_hosts"
    path.write_text(sshd.known_hosts(HOST_KEY))
    return path


def connect(bridge: Bridge) -> socket.socket:
    """As libvirt does with the URI that it is given."""
    (path,) = parse_qs(urlsplit(bridge.uri).query)["socket"]
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(path)
    return connection


def echo(bridge: Bridge, sent: bytes) -> bytes:
    with connect(bridge) as connection:
        threading.Thread(target=_send, args=(connection, sent), daemon=True).start()
        received = b""
        with contextlib.suppress(ConnectionResetError):  # what was sent was never read
            while len(received) < len(sent) and (data := connection.recv(1 << 16)):
                received += data
        return received


def _send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads any more
        connection.sendall(data)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_bytes_pass_in_both_directions_and_sessions_share_one_connection(
    sshd: Sshd, key_file: Path, known_hosts: Path
) -> None:
    sent = os.urandom(3 << 20)
    tunnel = Tunnel(sshd.target(key_file, known_hosts), SOCKET)
    try:
        assert echo(tunnel.bridge(), sent) == sent
        assert echo(tunnel.bridge(), b"again") == b"again"
        assert not sshd.commands
    finally:
        tunnel.close()


def test_where_no_socket_is_forwarded_the_helper_does_it(sshd: Sshd, key_file: Path, known_hosts: Path) -> None:
    sshd.forwards = False
    tunnel = Tunnel(sshd.target(key_file, known_hosts), SOCKET)
    try:
        assert echo(tunnel.bridge(), b"through the helper") == b"through the helper"
        assert sshd.commands == [HELPER.encode()]
    finally:
        tunnel.close()


def test_where_neither_is_allowed_the_bridge_knows_why(sshd: Sshd, key_file: Path, known_hosts: Path) -> None:
    sshd.forwards = sshd.runs_helper = False
    tunnel = Tunnel(sshd.target(key_file, known_hosts), SOCKET)
    try:
        bridge = tunnel.bridge()
        assert echo(bridge, b"anyone?") == b""
        assert isinstance(bridge.error, paramiko.ChannelException)
    finally:
        tunnel.close()


def test_closing_a_bridge_ends_a_call_that_waits(sshd: Sshd, key_file: Path, known_hosts: Path) -> None:
    tunnel = Tunnel(sshd.target(key_file, known_hosts), SOCKET)
    try:
        bridge = tunnel.bridge()
        with connect(bridge) as connection:
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            threading.Timer(0.1, bridge.close).start()
            assert connection.recv(1) == b""
        assert tunnel.is_alive
    finally:
        tunnel.close()


def test_a_connection_that_is_lost_is_noticed(sshd: Sshd, key_file: Path, known_hosts: Path) -> None:
    tunnel = Tunnel(sshd.target(key_file, known_hosts), SOCKET)
    try:
        with connect(tunnel.bridge()) as connection:
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            sshd.drop_connections()
            assert connection.recv(1) == b""
        wait_until(lambda: not tunnel.is_alive)
    finally:
        tunnel.close()


def test_only_a_pinned_key_type_is_asked_for(sshd: Sshd, key_file: Path, known_hosts: Path) -> None:
    known_hosts.write_text(sshd.known_hosts(RSA_HOST_KEY))
    ssh.dial(sshd.target(key_file, known_hosts)).close()


def test_a_host_may_be_trusted_blindly_when_the_entry_says_so(sshd: Sshd, key_file: Path) -> None:
    ssh.dial(sshd.target(key_file, None)).close()


def refusal(sshd: Sshd, key_file: Path, known_hosts: Path) -> ProviderError:
    with pytest.raises(ProviderError) as refused:
        Tunnel(sshd.target(key_file, known_hosts), SOCKET)
    return refused.value


def test_another_host_key_is_refused(sshd: Sshd, key_file: Path, known_hosts: Path) -> None:
    known_hosts.write_text(sshd.known_hosts(paramiko.ECDSAKey.generate()))
    assert isinstance(refusal(sshd, key_file, known_hosts), HostKeyMismatch)
    sshd.host_keys = [RSA_HOST_KEY]
    assert isinstance(refusal(sshd, key_file, known_hosts), HostKeyMismatch)
    known_hosts.write_text("")
    assert isinstance(refusal(sshd, key_file, known_hosts), HostKeyMismatch)


def test_a_key_that_the_host_does_not_know_is_refused(sshd: Sshd, key_file: Path, known_hosts: Path) -> None:
    sshd.accepts = paramiko.ECDSAKey.generate()
    assert isinstance(refusal(sshd, key_file, known_hosts), AuthenticationFailed)


def test_files_are_read_when_they_are_needed(sshd: Sshd, key_file: Path, known_hosts: Path) -> None:
    key, hosts = key_file.read_text(), known_hosts.read_text()
    key_file.unlink()
    assert type(refusal(sshd, key_file, known_hosts)) is Unavailable
    key_file.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n-----END OPENSSH PRIVATE KEY-----\n")
    unusable = refusal(sshd, key_file, known_hosts)
    assert isinstance(unusable, KeyUnusable)
    assert str(key_file) in unusable.detail
    assert "hunter2" not in str(unusable) + unusable.detail
    key_file.write_text(key)

    known_hosts.unlink()
    assert type(refusal(sshd, key_file, known_hosts)) is Unavailable
    known_hosts.write_text(hosts)
    ssh.dial(sshd.target(key_file, known_hosts)).close()


def test_a_port_that_nobody_listens_on_is_unreachable(sshd: Sshd, key_file: Path, known_hosts: Path) -> None:
    sshd.close()
    assert isinstance(refusal(sshd, key_file, known_hosts), Unreachable)


def test_a_port_that_speaks_no_ssh_is_given_up(
    sshd: Sshd, key_file: Path, known_hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "DIAL_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = ssh.Target("host1", "127.0.0.1", silent.getsockname()[1], "libvirt", key_file, None)
        with pytest.raises(SSHHandshakeFailed):
            ssh.dial(target)


def test_nothing_is_left_of_it(
    sshd: Sshd, key_file: Path, known_hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def resources() -> tuple[int, int, int]:
        folders = list(tmp_path.glob("proxyfleet-libvirt-*"))
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir())), len(folders)

    def once() -> None:
        tunnel = Tunnel(sshd.target(key_file, known_hosts), SOCKET)
        unused, used, broken = tunnel.bridge(), tunnel.bridge(), tunnel.bridge()
        assert echo(used, b"x") == b"x"
        with connect(broken) as connection:
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            sshd.drop_connections()
            assert connection.recv(1) == b""
        unused.close()
        tunnel.close()

    once()
    before = resources()
    for _ in range(10):
        once()
    wait_until(lambda: all(now <= then for now, then in zip(resources(), before, strict=True)))

"""libvirt's unix socket of a host, forwarded through SSH to unix sockets of this process.

libvirt itself is told of a local socket and knows nothing of SSH, so a call that gets no answer is ended from outside:
closing the bridge under it makes libvirt return at once. No event loop is run: with one, connections that several
threads share hang or crash.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import paramiko
from paramiko.channel import Channel

from providers.libvirt.ssh import CHANNEL_SECONDS, Target, Transport, dial

HELPER = "virt-ssh-helper qemu:///system"
"""Does the forwarding where sshd may not: works with ``restrict,command="virt-ssh-helper qemu:///system"``."""

CHUNK = 1 << 18
COMPLAINT_BYTES = 500


class Tunnel:
    """One SSH connection, over which any number of bridges reach the host's libvirt."""

    def __init__(self, target: Target, socket_path: str) -> None:
        """Dial ``target``. Raises a ProviderError that names the step that failed."""
        self._socket_path = socket_path
        self._transport: Transport = dial(target)
        self._folder = tempfile.mkdtemp(prefix="proxyfleet-libvirt-")
        self._numbers = 0
        self._needs_helper = False
        self._lock = threading.Lock()

    @property
    def is_alive(self) -> bool:
        return self._transport.is_active()

    def bridge(self) -> Bridge:
        with self._lock:
            self._numbers += 1
            return Bridge(f"{self._folder}/{self._numbers}", self._open_channel)

    def close(self) -> None:
        """Drop the connection and every bridge over it; waits for no answer of the host."""
        # Transport.close says goodbye first and would wait for a peer that reads nothing.
        with contextlib.suppress(OSError):
            self._transport.sock.shutdown(socket.SHUT_RDWR)
        self._transport.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _open_channel(self) -> Channel:
        if self._needs_helper:
            return self._run_helper()
        try:
            return self._transport.open_socket(self._socket_path)
        except paramiko.ChannelException as refusal:
            try:
                channel = self._run_helper()
            except paramiko.SSHException:
                raise refusal from None
            self._needs_helper = True
            return channel

    def _run_helper(self) -> Channel:
        channel = self._transport.open_session(timeout=CHANNEL_SECONDS)
        channel.exec_command(HELPER)
        return channel


class Bridge:
    """A unix socket of this process that leads one connection to the host's libvirt."""

    def __init__(self, path: str, open_channel: Callable[[], Channel]) -> None:
        self.error: Exception | None = None
        """Why the far end could not be reached or was lost; libvirt only says that the connection was reset."""
        self._path = path
        self._open_channel = open_channel
        self._near: socket.socket | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._carry, name="libvirt-bridge", daemon=True)
        self._thread.start()

    @property
    def uri(self) -> str:
        return f"qemu+unix:///system?mode=legacy&socket={quote(self._path)}"

    def close(self) -> None:
        """End the connection at once. The channel is closed by its own thread, which may have to wait for the host."""
        with self._lock:
            self._closed = True
            _shut(self._listener)
            if self._near is not None:
                _shut(self._near)

    def _carry(self) -> None:
        try:
            with self._listener:
                near, _ = self._listener.accept()
        except OSError:  # closed before libvirt came
            return
        finally:
            Path(self._path).unlink(missing_ok=True)
        with near:
            with self._lock:
                self._near = near
                if self._closed:
                    return
            try:
                far = self._open_channel()
            except (paramiko.SSHException, OSError, EOFError) as error:
                self.error = error
            else:
                back = threading.Thread(target=self._pump, args=(far, near, far), name="libvirt-bridge", daemon=True)
                back.start()
                self._pump(near, far, far)
                back.join()
            with self._lock:
                self._near = None

    def _pump(self, source: socket.socket | Channel, sink: socket.socket | Channel, far: Channel) -> None:
        try:
            while data := source.recv(CHUNK):
                sink.sendall(data)
            if source is far:
                self.error = self.error or _why_it_ended(far)
        except OSError as error:
            self.error = self.error or error
        finally:
            # Half a connection is of no use to libvirt: the end of either direction is the end of both.
            with self._lock:
                if self._near is not None:
                    _shut(self._near)
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                far.close()


def _why_it_ended(far: Channel) -> Exception:
    if far.recv_stderr_ready():
        complaint = far.recv_stderr(COMPLAINT_BYTES).decode(errors="replace").strip()
        return paramiko.SSHException(f"{HELPER}: {complaint}")
    return far.get_transport().get_exception() or ConnectionResetError("the host closed the connection")


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)

"""Sessions with a host's libvirt, each with a deadline, and the two ways to keep the SSH connections under them.

A session is a libvirt connection of its own: two threads on one connection wait for each other.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import libvirt
import paramiko

from providers.blocks import LibvirtBlock, LibvirtHost
from providers.errors import ProviderError, Unavailable
from providers.libvirt.errors import Code, Timeout, Unreachable, translate
from providers.libvirt.ssh import Target
from providers.libvirt.tunnel import Bridge, Tunnel
from providers.tracing import backend_call

logger = logging.getLogger(__name__)

# Without a handler of its own libvirt prints every error on stderr.
libvirt.registerErrorHandler(lambda _context, _error: None, None)


class Session:
    """What a caller does on one host until its deadline. Every remote call goes through ``rpc`` or ``find``."""

    def __init__(self, host: LibvirtHost, bridge: Bridge, deadline: Deadline) -> None:
        self.host = host
        self._bridge = bridge
        self._deadline = deadline
        self.connection: Any = self.rpc(libvirt.open, bridge.uri)

    def rpc(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call libvirt, log how long it took, and raise what it refuses as a ProviderError."""
        try:
            return self._timed(call, arguments)
        except libvirt.libvirtError as error:
            raise self._explain(error, call) from error

    def find(self, call: Callable[..., Any], *arguments: Any, missing: Code) -> Any | None:
        """The same for a look-up: None when libvirt answers ``missing``."""
        try:
            return self._timed(call, arguments)
        except libvirt.libvirtError as error:
            if error.get_error_code() == missing:
                return None
            raise self._explain(error, call) from error

    def send(self, stream: Any, data: bytes) -> None:
        """All of ``data`` into an upload; one call for each would flood the log."""
        left = memoryview(data)
        try:
            while left:
                left = left[stream.send(bytes(left)) :]
        except libvirt.libvirtError as error:
            raise self._explain(error, stream.send) from error

    def extend(self, seconds: float) -> None:
        """Progress was made: the session may go on for so long from now."""
        self._deadline.extend(seconds)

    def close(self) -> None:
        with contextlib.suppress(libvirt.libvirtError):
            self.connection.close()

    def _timed(self, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        started = time.monotonic()
        outcome = "ok"
        try:
            with backend_call(f"libvirt {_name(call)}", host=self.host.name):
                return call(*arguments)
        except libvirt.libvirtError as error:
            outcome = f"libvirt error {error.get_error_code()}"
            raise
        finally:
            milliseconds = (time.monotonic() - started) * 1000
            logger.debug("libvirt call: %s on %s took %.1f ms: %s", _name(call), self.host.name, milliseconds, outcome)

    def _explain(self, error: libvirt.libvirtError, call: Callable[..., Any]) -> ProviderError:
        name = self.host.name
        if self._deadline.passed:
            return Timeout(f"libvirt on host {name} did not answer in time", detail=f"{name}: {_name(call)}: deadline")
        if (cause := self._bridge.error) is not None:
            if isinstance(cause, paramiko.SSHException):
                detail = f"{name}: sshd opens no way to libvirt's socket {self.host.socket}: {cause}"
                return Unreachable(f"libvirt on host {name} can't be reached", detail=detail)
            return Unreachable(f"the connection to host {name} was lost", detail=f"{name}: {_name(call)}: {cause!r}")
        return translate(error.get_error_code() or 0, str(error), host=name, call=_name(call))


class Deadline:
    """Calls ``expire`` once, ``seconds`` from now or from the last ``extend``, unless it is stopped before."""

    def __init__(self, seconds: float, expire: Callable[[], None]) -> None:
        self.passed = False
        self._expire = expire
        self._at = time.monotonic() + seconds
        self._stopped = False
        self._changed = threading.Condition()
        threading.Thread(target=self._wait, name="libvirt-deadline", daemon=True).start()

    def extend(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds  # the thread looks again when it wakes

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _wait(self) -> None:
        with self._changed:
            while not self._stopped and (left := self._at - time.monotonic()) > 0:
                self._changed.wait(left)
            if self._stopped:
                return
            self.passed = True
        self._expire()


class Connections(Protocol):
    """Gives sessions. Safe to share between threads and to carry over a fork."""

    def session(self, host: LibvirtHost, *, seconds: float) -> AbstractContextManager[Session]:
        """A session that ends after ``seconds``, whatever the host does. Raises a ProviderError."""
        ...


class FreshConnections:
    """Dials for every session, with the key and the host keys as they are in their files then."""

    def __init__(self, block: LibvirtBlock) -> None:
        self._block = block

    @contextmanager
    def session(self, host: LibvirtHost, *, seconds: float) -> Iterator[Session]:
        tunnel = Tunnel(_target(self._block, host), host.socket)
        try:
            with _session(tunnel, host, seconds) as session:
                yield session
        finally:
            tunnel.close()


class KeptConnections:
    """Keeps one SSH connection for each host; its sessions are channels of it.

    One that broke, or under which a call got no answer, is used by no new session, and closed after its last.
    """

    def __init__(self, block: LibvirtBlock) -> None:
        self._block = block
        self._pid = os.getpid()
        self._links: dict[str, _Link] = {}
        self._dialling: dict[str, threading.Lock] = {host.name: threading.Lock() for host in block.hosts}
        self._lock = threading.Lock()
        self._inherited: list[_Link] = []

    @contextmanager
    def session(self, host: LibvirtHost, *, seconds: float) -> Iterator[Session]:
        link = self._borrow(host, seconds)
        try:
            with _session(link.tunnel, host, seconds) as session:
                yield session
        except (Timeout, Unreachable):
            link.retired = True
            raise
        finally:
            self._give_back(host, link)

    def _borrow(self, host: LibvirtHost, seconds: float) -> _Link:
        self._forget_inherited()
        if not self._dialling[host.name].acquire(timeout=seconds):
            raise Timeout(f"host {host.name} is slow to let anyone in")
        try:
            with self._lock:
                link = self._links.get(host.name)
                if link is not None and link.tunnel.is_alive and not link.retired:
                    link.users += 1
                    return link
            fresh = _Link(Tunnel(_target(self._block, host), host.socket))
            with self._lock:
                self._links[host.name] = fresh
            if link is not None:
                self._retire(link)
            return fresh
        finally:
            self._dialling[host.name].release()

    def _give_back(self, host: LibvirtHost, link: _Link) -> None:
        with self._lock:
            link.users -= 1
            if link.retired and self._links.get(host.name) is link:
                del self._links[host.name]
            unused = link.retired and not link.users
        if unused:
            link.tunnel.close()

    def _retire(self, link: _Link) -> None:
        with self._lock:
            link.retired = True
            unused = not link.users
        if unused:
            link.tunnel.close()

    def _forget_inherited(self) -> None:
        """A fork shares the parent's sockets: what it inherits it must neither use nor close, nor let be collected."""
        with self._lock:
            if self._pid != os.getpid():
                self._inherited += self._links.values()
                self._links = {}
                self._pid = os.getpid()


class _Link:
    def __init__(self, tunnel: Tunnel) -> None:
        self.tunnel = tunnel
        self.users = 1
        self.retired = False


@contextmanager
def _session(tunnel: Tunnel, host: LibvirtHost, seconds: float) -> Iterator[Session]:
    bridge = tunnel.bridge()
    deadline = Deadline(seconds, bridge.close)
    try:
        session = Session(host, bridge, deadline)
        try:
            yield session
        except Unavailable:
            bridge.close()  # else libvirt would say goodbye to a host that may not answer
            raise
        finally:
            session.close()
    finally:
        deadline.stop()
        bridge.close()


def _target(block: LibvirtBlock, host: LibvirtHost) -> Target:
    return Target(
        name=host.name,
        address=host.ssh_address,
        port=host.port,
        user=host.user,
        key_file=block.ssh_key_file,
        known_hosts_file=None if block.insecure_ignore_host_key else block.known_hosts_file,
    )


def _name(call: Callable[..., Any]) -> str:
    owner = getattr(call, "__self__", None)
    return f"{type(owner).__name__}.{call.__name__}" if owner is not None else call.__name__

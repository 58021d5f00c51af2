"""Real proxy servers: the contract, real traffic, and what else the driver promises."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from providers.base import Provider
from providers.blocks import ProcessBlock
from providers.errors import InstanceNotFound, InvalidRequest, Misconfigured, Unavailable
from providers.instances import InstanceState
from providers.process.driver import ProcessProvider
from providers.process.processes import find_process, group_members
from providers.process.tests.conftest import Open
from providers.process.tests.machine import answers, identity_file, is_open_in, kill, pid_of, processes_of, until
from providers.tests.contract import FOREIGN_FLEET, Act, ProviderContract, make_request

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the tests look at processes in /proc")


class TestProcessProvider(ProviderContract):
    @pytest.fixture
    def provider(self, open_provider: Open) -> Provider:
        return open_provider()

    @pytest.fixture
    def another_worker(self, open_provider: Open) -> Provider:
        return open_provider()

    @pytest.fixture
    def another_fleet_provider(self, open_provider: Open) -> Provider:
        return open_provider(fleet_id=FOREIGN_FLEET)

    @pytest.fixture
    def vanish(self, root: Path) -> Act:
        def vanish(provider_id: str) -> None:
            name = provider_id.split("/")[2]
            for pid in processes_of(name):
                kill(pid)

        return vanish


class Target(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Keep the tests' output clean."""


@pytest.fixture
def target_port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Target) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port of this machine where a connection attempt gets no answer: its queue is full."""
    with socket.socket() as listener, ExitStack() as queue:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(8):
            client = queue.enter_context(socket.socket())
            client.settimeout(0)
            client.connect_ex(address)
        yield address[1]


class TestTraffic:
    @pytest.fixture
    def proxy(self, provider: ProcessProvider) -> tuple[str, int]:
        instance = provider.create(make_request(port=3128))
        assert instance.address
        assert instance.port == 3128
        return instance.address, instance.port

    def test_plain_http_is_forwarded(self, proxy: tuple[str, int], target_port: int) -> None:
        connection = http.client.HTTPConnection(*proxy, timeout=10)
        connection.request("GET", f"http://127.0.0.1:{target_port}/")
        assert connection.getresponse().read() == b"hello"
        connection.close()

    def test_connect_opens_a_tunnel(self, proxy: tuple[str, int], target_port: int) -> None:
        connection = http.client.HTTPConnection(*proxy, timeout=10)
        connection.set_tunnel("127.0.0.1", target_port)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"hello"
        connection.close()

    def test_a_silent_target_stalls_nobody_else(
        self, proxy: tuple[str, int], target_port: int, silent_port: int
    ) -> None:
        with socket.create_connection(proxy, timeout=10) as stalled:
            stalled.sendall(f"CONNECT 127.0.0.1:{silent_port} HTTP/1.1\r\n\r\n".encode())
            self.test_connect_opens_a_tunnel(proxy, target_port)
            stalled.settimeout(0)
            with pytest.raises(BlockingIOError):
                stalled.recv(1)


class TestTheServersProcess:
    def test_it_is_one_process_in_a_session_of_its_own(self, provider: ProcessProvider, root: Path) -> None:
        instance = provider.create(make_request())
        pid = pid_of(root, instance)
        assert processes_of(instance.identity.instance_name) == [pid]
        assert os.getsid(pid) == pid
        assert os.getpgid(pid) == pid

    def test_it_inherits_neither_files_nor_secrets(
        self, provider: ProcessProvider, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PROXYFLEET_SECRET_KEY", "hunter2")
        secret = root.parent / "secret"
        descriptor = os.open(secret, os.O_RDWR | os.O_CREAT)
        try:
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - takes no keyword
            pid = pid_of(root, provider.create(make_request()))
        finally:
            os.close(descriptor)
        assert b"hunter2" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert not is_open_in(pid, secret)

    def test_it_writes_nothing_outside_its_folder(
        self, provider: ProcessProvider, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = tmp_path / "home"
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.chdir(home)
        instance = provider.create(make_request())
        assert not list(home.iterdir())
        folder = identity_file(root, instance).parent
        assert Path(f"/proc/{pid_of(root, instance)}/cwd").resolve() == folder.resolve()
        for path in (root, *folder.parents[:2], folder):
            assert path.stat().st_mode & 0o777 == 0o700

    def test_a_suspended_one_is_stopped(self, provider: ProcessProvider, root: Path) -> None:
        instance = provider.create(make_request())
        os.kill(pid_of(root, instance), signal.SIGSTOP)
        until(lambda: provider.get(instance.provider_id).state is InstanceState.STOPPED)
        provider.delete(instance.provider_id)
        assert not processes_of(instance.identity.instance_name)

    def test_delete_removes_its_folder(self, provider: ProcessProvider, root: Path) -> None:
        instance = provider.create(make_request())
        provider.delete(instance.provider_id)
        assert not list((root / "process" / "here").iterdir())
        assert not answers(instance)


class TestAddresses:
    def test_many_share_the_declared_port(self, provider: ProcessProvider) -> None:
        instances = [provider.create(make_request(port=3128)) for _ in range(3)]
        assert {instance.port for instance in instances} == {3128}
        assert len({instance.address for instance in instances}) == 3

    def test_a_changed_port_gives_a_new_address(self, provider: ProcessProvider) -> None:
        before = make_request(port=3128)
        after = replace(before, port=3129, identity=replace(before.identity, instance_hash="0123456789abcdef"))
        old, new = provider.create(before), provider.create(after)
        assert (new.port, old.port) == (3129, 3128)
        assert new.address != old.address

    def test_a_replacement_has_a_new_address(self, provider: ProcessProvider) -> None:
        request = make_request()
        old = provider.create(request)
        provider.delete(old.provider_id)
        assert provider.create(request).address != old.address

    def test_where_there_is_one_address_the_second_takes_a_free_port_and_says_so(self, open_provider: Open) -> None:
        provider = open_provider(host="127.0.0.2")
        with socket.socket() as probe:
            probe.bind(("127.0.0.2", 0))
            port = probe.getsockname()[1]
        first, second = provider.create(make_request(port=port)), provider.create(make_request(port=port))
        assert (first.address, first.port) == ("127.0.0.2", port)
        assert second.address == "127.0.0.2"
        assert second.port != port
        assert answers(second)

    def test_an_address_of_another_machine_is_misconfigured(self, open_provider: Open) -> None:
        with pytest.raises(Misconfigured, match=r"192\.0\.2\.1"):
            open_provider(host="192.0.2.1").create(make_request())

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may listen on every port")
    def test_a_privileged_port_is_named(self, provider: ProcessProvider) -> None:
        with pytest.raises(InvalidRequest, match="port: 80"):
            provider.create(make_request(port=80))


class TestCommandsThatFail:
    def test_one_that_ends_at_once_is_quoted(self, open_provider: Open, root: Path) -> None:
        provider = open_provider(command=[sys.executable, "-c", "raise SystemExit('no such ACL: {port}')"])
        with pytest.raises(Misconfigured, match="ended before it listened: no such ACL: 3128"):
            provider.create(make_request())
        assert not list((root / "process" / "here").iterdir())

    def test_one_that_is_not_installed_is_named(self, open_provider: Open, root: Path) -> None:
        provider = open_provider(command=["no-such-proxy", "{port}"])
        assert [(check.ready, check.reason) for check in provider.check()] == [(False, "Misconfigured")]
        with pytest.raises(Misconfigured, match="no-such-proxy can't be started: No such file"):
            provider.create(make_request())
        assert not list((root / "process" / "here").iterdir())

    def test_one_that_never_listens_is_ended(
        self, open_provider: Open, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ProcessProvider, "profile", replace(ProcessProvider.profile, call_deadline_seconds=9))
        request = make_request()
        provider = open_provider(command=[sys.executable, "-c", "import time; time.sleep(600)", "{port}"])
        with pytest.raises(Unavailable, match="does not listen"):
            provider.create(request)
        assert not processes_of(request.name)
        assert not list((root / "process" / "here").iterdir())


class TestState:
    def test_an_identity_that_cannot_be_read_is_never_gone(self, provider: ProcessProvider, root: Path) -> None:
        instance = provider.create(make_request())
        path = identity_file(root, instance)
        good = path.read_text()
        path.write_text(good[:40])
        with pytest.raises(Misconfigured, match="is damaged"):
            provider.get(instance.provider_id)
        assert provider.list().unreachable == (instance.identity.instance_name,)
        path.write_text(good)
        assert provider.get(instance.provider_id).state is InstanceState.RUNNING

    def test_what_has_a_damaged_identity_can_be_deleted(self, provider: ProcessProvider, root: Path) -> None:
        instance, other = provider.create(make_request()), provider.create(make_request())
        identity_file(root, instance).write_text("")
        provider.delete(instance.provider_id)
        assert not processes_of(instance.identity.instance_name)
        assert provider.list().unreachable == ()
        with pytest.raises(InstanceNotFound):
            provider.get(instance.provider_id)
        assert provider.get(other.provider_id).state is InstanceState.RUNNING

    def test_a_broken_identity_harms_no_other_create(self, provider: ProcessProvider, root: Path) -> None:
        broken = provider.create(make_request())
        path = identity_file(root, broken)
        good = path.read_text()
        path.write_text("")
        assert provider.create(make_request()).state is InstanceState.RUNNING
        path.write_text(good)

    def test_a_state_folder_that_cannot_be_written_fails_the_check(self, open_provider: Open, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        (check,) = open_provider(stateDir=str(tmp_path / "file")).check()
        assert (check.ready, check.reason) == (False, "Misconfigured")
        assert str(tmp_path / "file") in check.message

    def test_an_address_of_another_machine_fails_the_check(self, open_provider: Open) -> None:
        (check,) = open_provider(host="192.0.2.1").check()
        assert (check.ready, check.reason, check.message) == (
            False,
            "Misconfigured",
            "host: 192.0.2.1 is no address of this machine",
        )

    def test_entries_do_not_see_each_other(self, open_provider: Open, root: Path) -> None:
        shared = str(root / "process")
        here, block = open_provider(stateDir=shared), ProcessBlock.model_validate({"stateDir": shared})
        there = ProcessProvider(entry="there", block=block, fleet_id="fleet-under-test", state_dir=root)
        instance = here.create(make_request())
        assert not there.list().instances
        with pytest.raises(InstanceNotFound):
            there.get(instance.provider_id.replace("here://", "there://"))


def test_without_proc_ps_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    known = find_process(os.getpid())
    assert known
    monkeypatch.setattr("providers.process.processes._has_proc", lambda: False)
    told = find_process(os.getpid())
    assert told
    assert (told.pid, told.group, told.is_zombie) == (known.pid, known.group, False)
    assert told.birth == getattr(find_process(os.getpid()), "birth", None)
    assert os.getpid() in {process.pid for process in group_members(os.getpgid(0))}
    assert find_process(2**22 - 1) is None

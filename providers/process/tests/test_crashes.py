"""Deaths at every moment: of the driver, of the server, and of strangers whose pids look like ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from providers.errors import InstanceNotFound, Unavailable
from providers.instances import Instance, InstanceState
from providers.process.driver import ProcessProvider
from providers.process.tests.conftest import Open
from providers.process.tests.machine import (
    answers,
    identity_file,
    is_alive,
    kill,
    pid_of,
    processes_of,
    rewrite_identity,
    until,
)
from providers.tests.contract import make_request

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the tests look at processes in /proc")

FORKING_SERVER = """
import os, signal, socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
if os.fork() == 0 and "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    listener.accept()
"""
PRODUCT = """
import signal, sys
from pathlib import Path
from providers.blocks import ProcessBlock
from providers.process.driver import ProcessProvider
from providers.tests.contract import FLEET, make_request
provider = ProcessProvider(entry="here", block=ProcessBlock(), fleet_id=FLEET, state_dir=Path(sys.argv[1]))
print(provider.create(make_request()).provider_id, flush=True)
signal.pause()
"""
STEPS = {
    *("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fcntl.flock"),
    *("subprocess.Popen", "os.kill", "socket.connect", "time.sleep"),
}
"""Whatever the driver does to the outside world while it creates or deletes, as Python's audit events."""


def fork(action: Callable[[], object]) -> int:
    """The pid of a new process that does ``action`` and nothing else; its status is 1 when that raises."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def dies_at_step(step: int, action: Callable[[], object]) -> bool:
    """Do ``action`` in a process that is killed right before its ``step``-th step; False when it came to its end."""
    left = step

    def count_down(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in STEPS and not (event == "open" and str(arguments[0]).startswith("/proc/")):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def watched() -> None:
        sys.addaudithook(count_down)
        action()

    _, status = os.waitpid(fork(watched), 0)
    exit_code = os.waitstatus_to_exitcode(status)
    assert exit_code in {0, -signal.SIGKILL}
    return exit_code != 0


def await_processes(instance_name: str, number: Callable[[], int]) -> None:
    """A launcher that was left alone takes a moment to notice."""
    until(lambda: len(processes_of(instance_name)) == number())


def test_a_create_that_dies_anywhere_is_completed_by_the_next(provider: ProcessProvider, root: Path) -> None:
    step, died = 0, True
    while died:
        step += 1
        request = make_request()
        died = dies_at_step(step, partial(provider.create, request))
        instance = provider.create(request)
        await_processes(request.name, lambda: 1)
        assert processes_of(request.name) == [pid_of(root, instance)]
        assert [found.provider_id for found in provider.list()] == [instance.provider_id]
        provider.delete(instance.provider_id)
        assert not processes_of(request.name)
    assert step > 10, "the create was interrupted at each of its steps"


def test_a_create_that_dies_anywhere_and_is_not_repeated_leaves_one_instance_or_none(provider: ProcessProvider) -> None:
    step, died = 0, True
    while died:
        step += 1
        request = make_request()
        died = dies_at_step(step, partial(provider.create, request))
        await_processes(request.name, lambda: len(provider.list().instances))
        for instance in provider.list():
            provider.delete(instance.provider_id)
        assert not processes_of(request.name)


def test_a_delete_that_dies_anywhere_is_completed_by_the_next(provider: ProcessProvider, root: Path) -> None:
    step, died = 0, True
    while died:
        step += 1
        instance = provider.create(make_request())
        died = dies_at_step(step, partial(provider.delete, instance.provider_id))
        provider.delete(instance.provider_id)
        assert not processes_of(instance.identity.instance_name)
        assert not provider.list().instances
        assert not list((root / "process" / "here").iterdir())
    assert step > 3, "the delete was interrupted at each of its steps"


def test_a_server_outlives_the_product(provider: ProcessProvider, root: Path) -> None:
    product = subprocess.Popen(
        [sys.executable, "-c", PRODUCT, str(root)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with product:
        assert product.stdout
        provider_id = product.stdout.readline().strip()
        for number in (signal.SIGINT, signal.SIGKILL):
            os.killpg(product.pid, number)
    instance = provider.get(provider_id)
    assert instance.state is InstanceState.RUNNING
    assert answers(instance)


def test_a_killed_server_is_lost_and_leaves_nothing(provider: ProcessProvider, root: Path) -> None:
    instance = provider.create(make_request())
    kill(pid_of(root, instance))
    assert not answers(instance)
    with pytest.raises(InstanceNotFound):
        provider.get(instance.provider_id)
    assert not list((root / "process" / "here").iterdir())


@pytest.mark.parametrize("manner", ["", "deaf"])
def test_children_of_a_killed_server_do_not_keep_its_address(open_provider: Open, root: Path, manner: str) -> None:
    provider = open_provider(command=[sys.executable, "-c", FORKING_SERVER, "{host}", "{port}", manner])
    instance = provider.create(make_request())
    until(lambda: len(processes_of(instance.identity.instance_name)) == 2)
    kill(pid_of(root, instance))
    assert answers(instance), "the child still does"
    with pytest.raises(InstanceNotFound):
        provider.get(instance.provider_id)
    assert not answers(instance)
    assert not processes_of(instance.identity.instance_name)


def test_delete_ends_the_whole_group(open_provider: Open) -> None:
    provider = open_provider(command=[sys.executable, "-c", FORKING_SERVER, "{host}", "{port}", "deaf"])
    instance = provider.create(make_request())
    provider.delete(instance.provider_id)
    assert not processes_of(instance.identity.instance_name)


class TestStrangers:
    """An instance's record names a process that is not, or no longer, ours."""

    @pytest.fixture
    def stranger(self) -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
            yield process
            process.kill()

    @pytest.fixture
    def lost(self, provider: ProcessProvider, root: Path) -> Instance:
        instance = provider.create(make_request())
        kill(pid_of(root, instance))
        return instance

    def test_a_recycled_pid_is_neither_adopted_nor_killed(
        self, provider: ProcessProvider, root: Path, lost: Instance, stranger: subprocess.Popen[bytes]
    ) -> None:
        rewrite_identity(root, lost, pid=stranger.pid)
        assert not provider.list().instances
        with pytest.raises(InstanceNotFound):
            provider.get(lost.provider_id)
        provider.delete(lost.provider_id)
        assert stranger.poll() is None

    def test_a_create_over_a_recycled_pid_starts_anew(
        self, provider: ProcessProvider, root: Path, stranger: subprocess.Popen[bytes]
    ) -> None:
        request = make_request()
        first = provider.create(request)
        kill(pid_of(root, first))
        rewrite_identity(root, first, pid=stranger.pid)
        second = provider.create(request)
        assert pid_of(root, second) != stranger.pid
        assert stranger.poll() is None
        assert answers(second)

    def test_the_rest_of_a_strangers_group_is_left_alone(
        self, provider: ProcessProvider, root: Path, lost: Instance
    ) -> None:
        leader = subprocess.Popen(
            ["sh", "-c", "sleep 600 & echo $!"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with leader:
            assert leader.stdout
            child = int(leader.stdout.readline())
        rewrite_identity(root, lost, pid=leader.pid)
        provider.delete(lost.provider_id)
        assert is_alive(child)
        os.kill(child, signal.SIGKILL)

    def test_a_folder_of_ours_with_a_strangers_identity_is_left_alone(
        self, provider: ProcessProvider, root: Path
    ) -> None:
        instance = provider.create(make_request())
        rewrite_identity(root, instance, fleetId="someone-else")
        assert not provider.list().instances
        provider.delete(instance.provider_id)
        with pytest.raises(InstanceNotFound):
            provider.get(instance.provider_id)
        assert answers(instance)
        rewrite_identity(root, instance, fleetId=instance.identity.fleet_id)


def test_a_zombie_is_dead(provider: ProcessProvider, root: Path) -> None:
    instance = provider.create(make_request())
    kill(pid_of(root, instance))
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        stat = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        birth = identity_file(root, instance).read_text().split('"birth": "')[1].split("/")[0] + "/" + stat[19]
        rewrite_identity(root, instance, pid=child.pid, birth=birth)
        assert provider.get(instance.provider_id).state is InstanceState.RUNNING, "the record is as a real one"
        kill(child.pid)
        with pytest.raises(InstanceNotFound):
            provider.get(instance.provider_id)


def test_processes_that_create_at_once_make_one_instance(provider: ProcessProvider) -> None:
    request = make_request()
    children = [fork(partial(provider.create, request)) for _ in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(processes_of(request.name)) == 1


def test_creates_and_deletes_of_one_name_do_not_tangle(open_provider: Open) -> None:
    request = make_request()

    def make_and_break(_: int) -> None:
        worker = open_provider()
        for _ in range(4):
            with suppress(Unavailable):  # another one deleted it while this one waited for it
                worker.delete(worker.create(request).provider_id)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make_and_break, range(4)))
    assert not processes_of(request.name)
    assert not open_provider().list().instances

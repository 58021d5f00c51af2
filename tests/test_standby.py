"""Beat and migrations run in several processes and are done by one; how an orchestrator sees that a process lives."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery import current_app
from django.core.management import call_command
from django.db import connection

from leasing.tests.processes import environment
from proxyfleet.fleet.queues import DEFAULT_QUEUE
from proxyfleet.local.folders import remove_runtime_folder
from proxyfleet.local.processes import Child, Guard, wait_until
from proxyfleet.local.valkey import Valkey
from proxyfleet.postgres.locks import Lock, SessionLock, exclusive

ROOT = Path(__file__).parent.parent
SECONDS = 90


@contextmanager
def celery(*arguments: str, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "celery", "--quiet", "--app", "proxyfleet", *arguments]
    with subprocess.Popen(command, cwd=ROOT, env={**environment(), **variables}) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()


class Broker:
    """A Valkey that can be stopped and started again."""

    def __init__(self, var: Path, guard: Guard) -> None:
        self._valkey = Valkey(var)
        self._guard = guard
        self.url = self._valkey.url
        self.start()

    def start(self) -> None:
        self._valkey.prepare()
        self._child = Child(self._valkey.program, self._guard, output=subprocess.DEVNULL)
        assert wait_until(self._valkey.is_ready, SECONDS)

    def stop(self) -> None:
        self._child.stop()


@contextmanager
def broker(var: Path) -> Iterator[Broker]:
    with Guard() as guard:
        server = Broker(var, guard)
        yield server
        server.stop()
        remove_runtime_folder(var)


def liveness(component: str, file: Path) -> bool:
    """Run the very probe that deploy/ gives this process, on ``file``."""
    [manifest] = yaml.safe_load_all((ROOT / "deploy" / "base" / f"{component}.yaml").read_text())
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    command = container["livenessProbe"]["exec"]["command"]
    assert "/tmp/alive" in command[-1]
    probe = [*command[:-1], re.sub(r"/tmp/alive", str(file), command[-1]).replace("60 seconds", "12 seconds")]
    return subprocess.run(probe, check=False).returncode == 0


class Senders:
    """Whose messages come to the broker."""

    def __init__(self) -> None:
        self._connection = current_app.connection_for_read()
        self._queue: Any = self._connection.SimpleQueue(DEFAULT_QUEUE)
        self.forget()

    def next(self) -> int:
        """The pid of the process that sent the next message."""
        message = self._queue.get(timeout=SECONDS)
        message.ack()
        found = re.match(r"gen(\d+)@", message.headers["origin"])
        assert found
        return int(found[1])

    def forget(self) -> int:
        """How many came meanwhile."""
        waiting = len(self._queue.buffer) + self._queue.clear()
        self._queue.buffer.clear()
        return int(waiting)

    def close(self) -> None:
        self._queue.close()
        self._connection.release()


@pytest.fixture
def senders() -> Iterator[Senders]:
    senders = Senders()
    yield senders
    senders.forget()
    senders.close()


@pytest.mark.django_db(transaction=True)
def test_a_second_beat_takes_over_when_the_first_is_killed(senders: Senders, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    with celery("beat", "--schedule", str(tmp_path / "1"), variables={}) as first:
        assert senders.next() == first.pid
        second_one = celery("beat", "--schedule", str(tmp_path / "2"), variables={"PROXYFLEET_ALIVE_FILE": str(alive)})
        with second_one as second:
            assert wait_until(alive.exists, SECONDS), "it stands by"
            assert liveness("beat", alive)
            senders.forget()
            assert {senders.next() for _ in range(4)} == {first.pid}
            first.kill()
            first.wait()
            senders.forget()
            assert senders.next() == second.pid


@pytest.mark.django_db(transaction=True)
def test_a_beat_that_was_thrown_out_by_the_server_goes_on(senders: Senders, tmp_path: Path) -> None:
    with celery("beat", "--schedule", str(tmp_path / "schedule"), variables={}) as beat:
        assert senders.next() == beat.pid
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                [Lock.BEAT],
            )
            assert cursor.fetchall() == [(True,)]
        lock = SessionLock(Lock.BEAT)
        assert wait_until(lock.is_ours, SECONDS), "another took it meanwhile"
        try:
            # It notices within seconds, and from then on sends nothing.
            senders.forget()
            assert wait_until(lambda: _is_quiet(senders), SECONDS)
        finally:
            lock.give_up()
        assert senders.next() == beat.pid


def _is_quiet(senders: Senders) -> bool:
    threading.Event().wait(3)
    return senders.forget() == 0


@pytest.mark.django_db(transaction=True)
def test_migrations_are_run_by_one_process_at_a_time() -> None:
    other = connection.copy()
    done = threading.Event()

    def migrate() -> None:
        call_command("migrate", verbosity=0)
        connection.close()
        done.set()

    try:
        with exclusive(other, Lock.MIGRATE):
            thread = threading.Thread(target=migrate)
            thread.start()
            assert not done.wait(1)
        assert done.wait(SECONDS)
        thread.join()
    finally:
        other.close()


@pytest.mark.django_db(transaction=True)
def test_a_worker_is_alive_while_its_loop_turns_and_while_it_waits_for_a_broker(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    with broker(tmp_path / "var") as valkey:
        variables = {
            "PROXYFLEET_BROKER_URL": valkey.url,
            "PROXYFLEET_ALIVE_FILE": str(alive),
            "PROXYFLEET_WORKER_CONCURRENCY": "1",
        }
        options = ("--pool", "prefork", "--without-mingle", "--without-gossip", "--loglevel", "CRITICAL")
        with celery("worker", *options, variables=variables) as worker:
            assert liveness("worker", alive), "it has just started"
            assert wait_until(alive.exists, SECONDS)
            before = alive.stat().st_mtime
            assert wait_until(lambda: alive.stat().st_mtime > before, SECONDS), "it goes on"
            worker.send_signal(signal.SIGSTOP)
            assert wait_until(lambda: not liveness("worker", alive), SECONDS), "a loop that hangs is found"
            worker.send_signal(signal.SIGCONT)
            assert wait_until(lambda: liveness("worker", alive), SECONDS)
            valkey.stop()
            assert wait_until(lambda: not alive.exists(), SECONDS)
            assert liveness("worker", alive), "that is not the worker's fault"
            valkey.start()
            assert wait_until(alive.exists, SECONDS)

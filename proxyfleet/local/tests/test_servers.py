"""Real servers on real folders, started under every kind of account that this machine allows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import celery
import psutil
import psycopg
import pytest

from proxyfleet.local.account import UNPRIVILEGED_ID, USER_NAMESPACE, Account
from proxyfleet.local.errors import LocalError
from proxyfleet.local.leftovers import stop_leftovers
from proxyfleet.local.postgres import Postgres
from proxyfleet.local.processes import Child, Guard
from proxyfleet.local.servers import LocalServers
from proxyfleet.local.tests.waiting import DEADLINE, is_alive, wait_for

IN_NAMESPACE = Account(prefix=USER_NAMESPACE)
NOBODY = Account(uid=UNPRIVILEGED_ID)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

needs_namespaces = pytest.mark.skipif(
    subprocess.run([*USER_NAMESPACE, "true"], check=False).returncode != 0, reason="user namespaces are refused here"
)


@pytest.fixture
def var() -> Iterator[Path]:
    """A folder that every account can walk to, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="proxyfleet-test-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "var"


def remember(url: str, word: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE words AS SELECT %s::text AS word", [word])


def recall(url: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT word FROM words").fetchone()
    assert row is not None
    return str(row[0])


def servers_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if is_alive(process.pid) and Path(process.cwd()).is_relative_to(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_both_answer_and_the_data_outlives_them(var: Path) -> None:
    with LocalServers(var, throwaway=True) as servers:
        remember(servers.database_url, "é")
        celery.Celery(broker=servers.broker_url, set_as_current=False).send_task("anything")
    assert servers_in(var) == []
    with LocalServers(var, throwaway=True) as servers:
        assert recall(servers.database_url) == "é"


def test_sockets_work_below_a_path_longer_than_a_socket_may_have(var: Path) -> None:
    deep = var / ("d" * 60) / "with space" / ("é" * 60)
    with LocalServers(deep, throwaway=True) as servers:
        remember(servers.database_url, "deep")
        celery.Celery(broker=servers.broker_url, set_as_current=False).send_task("anything")


def test_a_folder_is_used_by_one_at_a_time(var: Path) -> None:
    refusal = f"Process {os.getpid()} is already running"
    with LocalServers(var, throwaway=True), pytest.raises(LocalError, match=refusal):
        LocalServers(var, throwaway=True).__enter__()


def test_starts_again_after_kill_9(var: Path) -> None:
    """The lock files that name a pid are left behind, and that pid is somebody else's by now."""
    postgres = Postgres(var)
    postgres.prepare()
    with Guard() as guard:
        child = Child(postgres.program, guard, output=subprocess.DEVNULL)
        wait_for(postgres.is_ready, "PostgreSQL's answer")
        remember(postgres.url, "kept")
        child.kill()
        wait_for(lambda: child.poll() is not None, "the end of PostgreSQL")
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        for lock in (var / "postgres" / "postmaster.pid", var / "run" / "postgres" / ".s.PGSQL.5432.lock"):
            lock.write_text(lock.read_text().replace(str(child.process.pid), str(stranger.pid), 1))
        with LocalServers(var) as servers:
            assert recall(servers.database_url) == "kept"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_server_that_outlived_its_run_is_stopped_first(var: Path) -> None:
    abandoned = Postgres(var, throwaway=True)
    abandoned.prepare()
    with Guard() as guard:
        child = Child(abandoned.program, guard, output=subprocess.DEVNULL)
        wait_for(abandoned.is_ready, "PostgreSQL's answer")
        remember(abandoned.url, "kept")
        with LocalServers(var, throwaway=True) as servers:
            assert recall(servers.database_url) == "kept"
        assert child.poll() == 0


def test_a_stranger_of_the_same_name_is_left_alone(var: Path) -> None:
    var.mkdir()
    stranger = subprocess.Popen(["sleep", "1000"], cwd=var)
    try:
        stop_leftovers("postgres", var)
        assert is_alive(stranger.pid)
    finally:
        stranger.kill()
        stranger.wait()


def test_kill_9_of_the_owner_stops_both_servers(var: Path) -> None:
    script = (
        "import pathlib, sys, time; from proxyfleet.local.servers import LocalServers\n"
        "with LocalServers(pathlib.Path(sys.argv[1]), throwaway=True): print('up', flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(var)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        assert servers_in(var)
        owner.send_signal(signal.SIGKILL)
    wait_for(lambda: not servers_in(var), "the end of the servers")


@needs_root
@pytest.mark.parametrize(
    "account",
    [pytest.param(IN_NAMESPACE, marks=needs_namespaces, id="namespace"), pytest.param(NOBODY, id="nobody")],
)
def test_root_runs_postgres_as_somebody_else(var: Path, account: Account) -> None:
    postgres = Postgres(var, throwaway=True, account=account)
    postgres.prepare()
    with Guard() as guard:
        child = Child(postgres.program, guard, output=subprocess.DEVNULL)
        wait_for(postgres.is_ready, "PostgreSQL's answer")
        child.stop()
    assert (var / "postgres").stat().st_mode & 0o077 == 0
    assert (var / "run" / "postgres").stat().st_mode & 0o077 == 0


@needs_root
def test_nobody_finds_its_data_when_the_checkout_is_in_a_closed_home(
    var: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = var.parent / "root"
    home.mkdir(mode=0o700)
    monkeypatch.setattr("proxyfleet.local.postgres.SHARED_FOLDER", var.parent)
    postgres = Postgres(home / "checkout" / "var", throwaway=True, account=NOBODY)
    postgres.prepare()
    with Guard() as guard:
        child = Child(postgres.program, guard, output=subprocess.DEVNULL)
        wait_for(postgres.is_ready, "PostgreSQL's answer")
        child.stop()
    assert home.stat().st_mode & 0o777 == 0o700


@needs_namespaces
def test_an_ordinary_user_runs_both(var: Path) -> None:
    script = (
        "import os, pathlib, sys; from proxyfleet.local.servers import LocalServers\n"
        "with LocalServers(pathlib.Path(sys.argv[1]), throwaway=True): print(os.geteuid())"
    )
    argv = [*USER_NAMESPACE, sys.executable, "-c", script, str(var)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.stdout, done.stderr) == ("1000\n", "")


def test_says_who_owns_a_folder_that_is_not_ours(var: Path) -> None:
    (var / "run").mkdir(parents=True)
    (var / "run" / "postgres").symlink_to(var)
    with pytest.raises(LocalError, match="not a folder of ours"):
        Postgres(var, throwaway=True).prepare()

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from proxyfleet.local.lock import exclusive
from proxyfleet.local.tests.waiting import DEADLINE

ROOT = Path(__file__).parents[3]


def run(*argv: str, environment: Mapping[str, str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proxyfleet.local", *argv]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False)


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("PROXYFLEET_DISCOVERY_ADDR", "nonsense", "PROXYFLEET_DISCOVERY_ADDR: 'nonsense' is not an address"),
        ("PROXYFLEET_WORKER_CONCURRENCY", "many", "PROXYFLEET_WORKER_CONCURRENCY: "),
        ("PROXYFLEET_STATE_DIR", "/proc/none", "Can't write to /proc/none"),
    ],
)
def test_what_cannot_start_says_so_in_one_line(tmp_path: Path, variable: str, value: str, complaint: str) -> None:
    unused = {"PROXYFLEET_STATE_DIR": str(tmp_path), "PROXYFLEET_HEALTHCHECK_URL": "https://localhost/"}
    done = run("run", environment=unused | {variable: value})
    assert done.returncode == 1
    assert done.stderr.startswith(f"proxyfleet: {complaint}")
    assert len(done.stderr.splitlines()) == 1


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(
            "run",
            environment={
                "PROXYFLEET_STATE_DIR": str(tmp_path),
                "PROXYFLEET_HEALTHCHECK_URL": "https://localhost/",
                "PROXYFLEET_DISCOVERY_ADDR": address,
            },
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"proxyfleet: Can't listen on {address} (Address already in use)")
    assert len(done.stderr.splitlines()) == 1


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(
            "run",
            folder=tmp_path,
            environment={
                "PROXYFLEET_STATE_DIR": "",
                "PROXYFLEET_DATABASE_URL": "",
                "PROXYFLEET_BROKER_URL": "",
                "PROXYFLEET_SECRET_KEY": "",
                "PROXYFLEET_HEALTHCHECK_URL": "https://localhost/",
                "PROXYFLEET_DISCOVERY_ADDR": f"127.0.0.1:{taken.getsockname()[1]}",
            },
        )
    assert "Address already in use" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["var"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_what_a_person_or_a_full_disk_did_to_the_kept_files_is_borne(tmp_path: Path) -> None:
    (tmp_path / "api-token").write_text("chosen-by-me\n")
    (tmp_path / "secret-key").write_text("")
    (tmp_path / "external-port").write_text("31\x00")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(
            "run",
            environment={
                "PROXYFLEET_STATE_DIR": str(tmp_path),
                "PROXYFLEET_HEALTHCHECK_URL": "https://localhost/",
                "PROXYFLEET_DISCOVERY_ADDR": f"127.0.0.1:{taken.getsockname()[1]}",
            },
        )
    assert "Address already in use" in done.stderr, done.stderr
    assert len((tmp_path / "secret-key").read_text()) >= 32
    assert (tmp_path / "external-port").read_text().isdecimal()


def test_a_state_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret-key").mkdir()
    done = run("run", environment={"PROXYFLEET_STATE_DIR": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr == f"proxyfleet: {tmp_path}/secret-key can't be used: Is a directory.\n"


def test_a_second_run_names_the_first(tmp_path: Path) -> None:
    with exclusive(tmp_path):
        done = run("run", environment={"PROXYFLEET_STATE_DIR": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr == f"proxyfleet: Process {os.getpid()} is already running in {tmp_path}: stop it first.\n"


def test_exec_gives_a_command_servers_of_its_own_and_returns_its_status() -> None:
    script = 'echo "$PROXYFLEET_DATABASE_URL"; exit 7'
    done = run("exec", "sh", "-c", script, environment={"PROXYFLEET_DATABASE_URL": "", "PROXYFLEET_BROKER_URL": ""})
    assert done.returncode == 7
    assert done.stdout.startswith("postgresql://")
    assert done.stdout.strip() != os.environ["PROXYFLEET_DATABASE_URL"]


def test_what_a_shell_says_of_other_databases_is_not_for_ours() -> None:
    environment = {"PROXYFLEET_DATABASE_URL": "", "PROXYFLEET_BROKER_URL": "", "PGSERVICE": "x", "PGOPTIONS": "-c x=y"}
    done = run("exec", sys.executable, "manage.py", "migrate", "--check", environment=environment)
    assert "service" not in done.stderr
    assert "unrecognized configuration parameter" not in done.stderr
    assert done.returncode == 1  # nothing is migrated yet, which it found out from the database

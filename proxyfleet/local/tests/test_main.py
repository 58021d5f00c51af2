from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proxyfleet.local.lock import exclusive
from proxyfleet.local.tests.waiting import DEADLINE


def run(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proxyfleet.local", *argv]
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE, check=False)


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
    done = run("run", **(unused | {variable: value}))
    assert done.returncode == 1
    assert done.stderr.startswith(f"proxyfleet: {complaint}")
    assert len(done.stderr.splitlines()) == 1


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run(
            "run",
            PROXYFLEET_STATE_DIR=str(tmp_path),
            PROXYFLEET_HEALTHCHECK_URL="https://localhost/",
            PROXYFLEET_DISCOVERY_ADDR=address,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"proxyfleet: Can't listen on {address} (Address already in use)")
    assert len(done.stderr.splitlines()) == 1


def test_a_second_run_names_the_first(tmp_path: Path) -> None:
    with exclusive(tmp_path):
        done = run("run", PROXYFLEET_STATE_DIR=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"proxyfleet: Process {os.getpid()} is already running in {tmp_path}: stop it first.\n"


def test_exec_gives_a_command_servers_of_its_own_and_returns_its_status() -> None:
    script = 'echo "$PROXYFLEET_DATABASE_URL"; exit 7'
    done = run("exec", "sh", "-c", script, PROXYFLEET_DATABASE_URL="", PROXYFLEET_BROKER_URL="")
    assert done.returncode == 7
    assert done.stdout.startswith("postgresql://")
    assert done.stdout.strip() != os.environ["PROXYFLEET_DATABASE_URL"]

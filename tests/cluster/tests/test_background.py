"""The cluster that a person starts: in the background, until it is told to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster.daemon import Daemon
from tests.cluster.node import ROOT


def run(state: Path, verb: str) -> str:
    command = [sys.executable, "-m", "tests.cluster", "--state", str(state), verb]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_up_says_how_to_reach_it_and_down_leaves_nothing(tmp_path: Path) -> None:
    state = tmp_path / "cluster"
    try:
        shell = f"{run(state, 'up')}\nkubectl create namespace mine\n"
        said = subprocess.run(["sh", "-c", shell], env=os.environ, capture_output=True, text=True, check=True).stdout
        assert said == "namespace/mine created\n"
        daemon = Daemon("api-server", state).process()
        assert daemon is not None
        family = [psutil.Process(daemon.pid), *psutil.Process(daemon.pid).children(recursive=True)]
        assert {"etcd", "kube-apiserver"} <= {process.name() for process in family}
        run(state, "up")
        again = Daemon("api-server", state).process()
        assert again is not None
        assert (again.pid, again.birth) == (daemon.pid, daemon.birth)
    finally:
        run(state, "down")
    assert psutil.wait_procs(family, timeout=10)[1] == []
    assert not state.exists()


def test_a_stranger_with_a_recorded_number_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        daemon = Daemon("api-server", tmp_path)
        (tmp_path / "api-server.json").write_text(json.dumps({"pid": stranger.pid, "birth": "earlier"}))
        assert daemon.process() is None
        daemon.stop()
        with pytest.raises(subprocess.TimeoutExpired):
            stranger.wait(0.2)
        stranger.kill()

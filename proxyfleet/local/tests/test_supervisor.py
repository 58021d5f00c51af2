from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import pytest

from proxyfleet.local.supervisor import DOUBLED_SIGNAL_SECONDS
from proxyfleet.local.tests.waiting import DEADLINE, is_alive, wait_for

SLEEP = ["sleep", "1000"]


class Supervised:
    """A running supervisor and what it has printed so far."""

    def __init__(self, folder: Path, programs: list[dict[str, Any]]) -> None:
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "proxyfleet.local.tests.supervise", json.dumps(programs)],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    @property
    def said(self) -> list[str]:
        """What the programs printed, without their names and without the supervisor's own lines."""
        texts = [line.partition("| ")[2] for line in self.lines]
        return [text for text in texts if not text.startswith("ready after")]

    def pids(self, label: str) -> list[int]:
        """The numbers in the first line that holds ``label``."""
        return [int(word) for word in next(line for line in self.lines if label in line).split() if word.isdigit()]

    def wait_for_line(self, text: str, *, times: int = 1) -> None:
        wait_for(lambda: sum(text in line for line in self.lines) >= times, f"{text!r} in the output, {times} times")

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)


Supervise: TypeAlias = Callable[..., Supervised]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    started: list[Supervised] = []

    def start(*programs: dict[str, Any]) -> Supervised:
        started.append(Supervised(tmp_path, list(programs)))
        return started[-1]

    yield start
    for supervised in started:
        if supervised.process.poll() is None:
            supervised.process.kill()
            supervised.process.wait()


def shell(name: str, script: str, **fields: object) -> dict[str, Any]:
    return {"name": name, "argv": ["sh", "-c", script], **fields}


def test_each_line_carries_the_name_of_its_program(supervise: Supervise, tmp_path: Path) -> None:
    ready = str(tmp_path / "ready")
    script = f"echo out; echo err >&2; printf unfinished; touch {ready}; sleep 1000"
    supervised = supervise(shell("web", script, ready=ready), {"name": "worker", "argv": SLEEP})
    supervised.wait_for_line("worker | ready")
    assert supervised.stop() == 0
    lines = [line for line in supervised.lines if "ready" not in line]
    assert lines == ["web    | out", "web    | err", "web    | unfinished"]


def test_a_chatty_program_loses_no_line_and_blocks_nobody(supervise: Supervise) -> None:
    supervised = supervise(shell("chatty", "seq 1 200000; echo done; sleep 1000"), {"name": "quiet", "argv": SLEEP})
    supervised.wait_for_line("chatty | done")
    assert supervised.stop() == 0
    assert supervised.said == [*map(str, range(1, 200001)), "done"]


def test_the_last_words_of_a_program_are_printed(supervise: Supervise) -> None:
    supervised = supervise(shell("migrate", "seq 1 5000; exit 3", once=True))
    assert supervised.process.wait(DEADLINE) == 1
    assert supervised.said[:5000] == [*map(str, range(1, 5001))]


def test_a_program_starts_when_the_one_before_is_ready(supervise: Supervise, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    supervised = supervise(
        shell("database", f"sleep 0.3; echo up; touch {ready}; sleep 1000", ready=str(ready)),
        shell("migrate", "sleep 0.3; echo migrated", once=True),
        shell("web", "echo serving; sleep 1000"),
    )
    supervised.wait_for_line("serving")
    supervised.stop()
    assert supervised.said == ["up", "migrated", "serving"]


def test_stops_in_reverse_order_and_lets_each_finish(supervise: Supervise) -> None:
    def program(name: str) -> dict[str, Any]:
        trap = f"trap 'sleep 0.2; echo {name} ends; exit 0' TERM"
        return shell(name, f"{trap}; echo started; while :; do sleep 0.05; done")

    supervised = supervise(program("first"), program("second"))
    supervised.wait_for_line("started", times=2)
    assert supervised.stop(signal.SIGTERM) == 0
    assert supervised.said[2:] == ["second ends", "first ends"]


def test_kills_what_does_not_stop_in_time(supervise: Supervise) -> None:
    script = "trap '' TERM; sleep 1000 & echo pids $$ $!; while :; do sleep 0.05; done"
    supervised = supervise(shell("deaf", script, grace_seconds=0.2))
    supervised.wait_for_line("pids")
    pids = supervised.pids("pids")
    assert supervised.stop() == 0
    wait_for(lambda: not any(map(is_alive, pids)), "the end of the deaf program and its child")


def test_a_second_signal_ends_the_patience(supervise: Supervise) -> None:
    script = "trap 'echo deaf' TERM; echo pids $$; while :; do sleep 0.05; done"
    supervised = supervise(shell("deaf", script, grace_seconds=1000))
    supervised.wait_for_line("pids")
    first = time.monotonic()
    supervised.process.send_signal(signal.SIGINT)
    supervised.wait_for_line("| deaf")
    wait_for(lambda: time.monotonic() > first + DOUBLED_SIGNAL_SECONDS + 0.5, "a signal that is no echo of the first")
    supervised.process.send_signal(signal.SIGINT)
    assert supervised.process.wait(DEADLINE) == 0


def test_restarts_what_dies_after_killing_what_it_left(supervise: Supervise) -> None:
    supervised = supervise(shell("web", "sleep 1000 & echo pids $$ $!; wait"))
    supervised.wait_for_line("ready")
    supervised.wait_for_line("pids")
    leader, worker = supervised.pids("pids")
    os.kill(leader, signal.SIGKILL)
    supervised.wait_for_line("web | was killed by SIGKILL; starting it again in 1 s")
    wait_for(lambda: not is_alive(worker), "the end of the dead leader's worker")
    supervised.wait_for_line("pids", times=2)
    assert supervised.stop() == 0


def test_a_signal_without_a_name_is_borne(supervise: Supervise) -> None:
    number = signal.SIGRTMIN + 1
    supervised = supervise(shell("web", "echo pids $$; exec sleep 1000"))
    supervised.wait_for_line("ready")
    supervised.wait_for_line("pids")
    os.kill(supervised.pids("pids")[0], number)
    supervised.wait_for_line(f"web | was killed by signal {number:d}; starting it again in 1 s")
    supervised.wait_for_line("pids", times=2)
    assert supervised.stop() == 0


def test_gives_up_when_a_program_fails_before_it_is_ready(supervise: Supervise) -> None:
    supervised = supervise({"name": "database", "argv": SLEEP}, shell("migrate", "echo broken; exit 3", once=True))
    assert supervised.process.wait(DEADLINE) == 1
    assert supervised.lines[-2:] == [
        "migrate  | broken",
        "migrate ended with status 3 before it was ready; its output is above.",
    ]


def test_kill_9_leaves_no_process(supervise: Supervise) -> None:
    """What the program started hears of the supervisor's death from nobody but the guard."""
    script = "trap '' TERM INT HUP; sleep 1000 & echo pids $$ $!; while :; do sleep 0.05; done"
    supervised = supervise(shell("web", script), {"name": "beat", "argv": SLEEP})
    supervised.wait_for_line("beat | ready")
    pids = supervised.pids("pids")
    assert all(map(is_alive, pids))
    os.killpg(supervised.process.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, pids)), "the end of the children")


def test_stops_when_nobody_reads_its_output() -> None:
    programs = json.dumps([shell("web", "while :; do echo line; sleep 0.01; done")])
    command = f"{sys.executable} -m proxyfleet.local.tests.supervise '{programs}' | head -n 3"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=DEADLINE, check=True)
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == ""


def pid_in(lines: Iterable[str]) -> int:
    return next(int(line.split()[-1]) for line in lines if "pid" in line)


def test_stops_when_its_terminal_is_closed() -> None:
    """The signal goes to the terminal's first process alone, which may be a `make` that keeps it to itself."""
    ours, theirs = os.openpty()
    programs = json.dumps([shell("web", "echo pid $$; exec sleep 1000")])
    command = [sys.executable, "-m", "proxyfleet.local.tests.supervise", programs]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, start_new_session=True) as supervisor:
        os.close(theirs)
        with os.fdopen(ours) as terminal:
            pid = pid_in([terminal.readline(), terminal.readline()])  # the other one is ours: ready
        assert supervisor.wait(DEADLINE) == 0
    assert not is_alive(pid)


def test_stops_when_the_make_that_runs_it_is_killed(tmp_path: Path) -> None:
    programs = json.dumps([shell("web", "echo pid $$; exec sleep 1000")])
    makefile = f'run:\n\t@exec {sys.executable} -m proxyfleet.local.tests.supervise "$$PROGRAMS"\n'
    (tmp_path / "Makefile").write_text(makefile)
    command = ["make", "-f", str(tmp_path / "Makefile")]
    with subprocess.Popen(
        command, env=os.environ | {"PROGRAMS": programs}, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as make:
        assert make.stdout is not None
        pid = pid_in(make.stdout)
        [supervisor] = psutil.Process(make.pid).children()
        make.kill()
        wait_for(lambda: not is_alive(supervisor.pid), "the end of the supervisor")
    assert not is_alive(pid)

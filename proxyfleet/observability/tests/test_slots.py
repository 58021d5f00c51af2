"""Processes that count in one folder, and what becomes of their files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxyfleet import conf
from proxyfleet.observability import exposition, metrics, slots

COUNT = """
import os, sys
from proxyfleet.observability.metrics import gc_deleted
gc_deleted.labels("here").inc(int(sys.argv[1]))
print("counted", flush=True)
sys.stdin.read()
"""
FORK = """
import os
from proxyfleet.observability.metrics import gc_deleted
gc_deleted.labels("here").inc()
children = [os.fork() for _ in range(1)]
gc_deleted.labels("here").inc()
if children == [0]:
    os._exit(0)
os.waitpid(children[0], 0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of metrics that this process reads and counts in as well."""
    place = tmp_path / "metrics"
    monkeypatch.setenv("PROXYFLEET_METRICS_DIR", str(place))
    monkeypatch.setattr(slots, "_state", slots._State())
    conf.settings.cache_clear()
    yield place
    slots._state.leave()
    monkeypatch.undo()
    conf.settings.cache_clear()


def counting(amount: int) -> subprocess.Popen[str]:
    """A process that has counted so much and lives until its input ends."""
    command = [sys.executable, "-c", COUNT, str(amount)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "counted\n"
    return process


def end(process: subprocess.Popen[str], *, kill: bool = False) -> None:
    if kill:
        process.send_signal(signal.SIGKILL)
    process.communicate()


def deleted() -> float:
    page = exposition.page(authorization="", accept="").body.decode()
    found = [
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "proxyfleet_gc_deleted_total"
    ]
    return sum(found)


def test_each_process_adds_to_the_sum(folder: Path) -> None:
    slots.join()
    processes = [counting(amount) for amount in (1, 10, 100)]
    assert deleted() == 111
    for process in processes:
        end(process)
    assert deleted() == 111


def test_one_that_takes_the_place_of_a_killed_one_goes_on_with_its_files(folder: Path) -> None:
    slots.join()
    for _ in range(5):
        end(counting(1), kill=True)
    assert deleted() == 5
    assert len(list(folder.glob("counter_*.db"))) == 1


def test_a_child_that_is_forked_counts_for_itself(folder: Path) -> None:
    slots.join()
    subprocess.run([sys.executable, "-c", FORK], check=True)
    assert deleted() == 3
    assert len(list(folder.glob("counter_*.db"))) == 2


def test_a_histogram_is_told_with_all_its_buckets(folder: Path) -> None:
    metrics.provider_check_duration.labels("here").observe(0.3)
    metrics.provider_check_duration.labels("there").observe(1_000)
    page = exposition.page(authorization="", accept="").body.decode()
    buckets: dict[str, list[float]] = {"here": [], "there": []}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == "proxyfleet_provider_check_duration_seconds_bucket":
                buckets[sample.labels["provider"]].append(sample.value)
    smaller = len([bound for bound in metrics.PROBE_SECONDS if bound < 0.3])
    assert buckets["here"] == [0] * smaller + [1] * (len(metrics.PROBE_SECONDS) + 1 - smaller)
    assert buckets["there"] == [0] * len(metrics.PROBE_SECONDS) + [1]


def test_what_is_left_when_nobody_counts_is_removed(folder: Path) -> None:
    end(counting(7))
    slots.join()
    assert deleted() == 0
    assert not list(folder.glob("counter_*.db"))


def test_a_folder_that_cant_be_used_costs_the_count_and_nothing_else(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file")
    with pytest.raises(OSError, match="exists"):
        slots.join()
    value = slots.SlotValue("counter", "lost", "lost_total", (), (), "")
    value.inc(1)
    value.inc(1)
    assert value.get() == 0
    assert caplog.text.count("PROXYFLEET_METRICS_DIR") == 1


def test_a_folder_of_somebody_else_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is below a folder that everybody may write to."""
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="somebody else"):
        slots.join()

"""The lock on an instance's folder holds even while the folder is removed and made again."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest

from providers.process.folder import Busy, InstanceFolder, locked


@pytest.fixture
def folder(tmp_path: Path) -> InstanceFolder:
    return InstanceFolder(tmp_path / "instance")


def test_it_admits_one_at_a_time(folder: InstanceFolder) -> None:
    with locked(folder.path, deadline=0, make=True), pytest.raises(Busy), locked(folder.path, deadline=0):
        pytest.fail("two at a time")
    with locked(folder.path, deadline=0):
        pass


def test_it_needs_a_folder_unless_told_to_make_one(folder: InstanceFolder) -> None:
    with pytest.raises(FileNotFoundError), locked(folder.path, deadline=0):
        pytest.fail("there is nothing to lock")


def test_a_folder_that_is_replaced_just_before_it_is_locked_is_not_mistaken(
    folder: InstanceFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace_it_first(descriptor: int, operation: int) -> None:
        monkeypatch.undo()  # the moment between opening and locking can't be hit otherwise
        folder.remove()
        folder.path.mkdir()
        fcntl.flock(descriptor, operation)

    folder.path.mkdir()
    monkeypatch.setattr(fcntl, "flock", replace_it_first)
    with locked(folder.path, deadline=time.monotonic() + 30), pytest.raises(Busy), locked(folder.path, deadline=0):
        pytest.fail("the folder that is there was not the one that was locked")

"""Where a process counts: in files of the metrics folder that are its own as long as it lives.

A process takes the lowest slot that no other holds; a lock of the kernel keeps it, and gives it up however the process
ends. So the files are as many as the processes that ever ran at once, and one that takes the slot of another that was
killed goes on counting where that one stopped: no count is lost, and none is made twice. The sum over all slots is what
the folder tells; processes on one machine may share it.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import logging
import os
import tempfile
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from proxyfleet.conf import settings

logger = logging.getLogger(__name__)

_DOOR = "lock"
"""Held while a slot is chosen."""


def folder() -> Path:
    """Where this process, and all that share its metrics, count."""
    return settings().metrics_dir or Path(tempfile.gettempdir()) / f"proxyfleet-metrics-{os.getuid()}"


def join() -> None:
    """Take a slot now, unless this process has one. Raises OSError when the folder can't be used."""
    with _state.lock:
        _state.enter()


class _State:
    """This process's slot. A child that was forked has none of its parent's."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.files: dict[str, MmapedDict] | None = None
        """The slot's, by the kind of metric; None: no slot was taken yet."""
        self._slot: int | None = None
        self._number = 0
        self._is_lost = False

    def enter(self) -> dict[str, MmapedDict]:
        if self.files is None:
            self._number, self._slot = _take(folder())
            self.files = {}
        return self.files

    def file(self, kind: str) -> MmapedDict | None:
        """None: the folder can't be used, and what is counted is lost."""
        if self._is_lost:
            return None
        try:
            files = self.enter()
            if kind not in files:
                files[kind] = MmapedDict(str(folder() / f"{kind}_{self._number}.db"))
                for key in _keys[kind]:
                    files[kind].read_value(key)  # which writes the zero
        except OSError as error:
            self._is_lost = True
            logger.warning("This process counts in no metrics: PROXYFLEET_METRICS_DIR: %s", error)
            return None
        return files[kind]

    def leave(self) -> None:
        for file in (self.files or {}).values():
            file.close()
        if self._slot is not None:
            os.close(self._slot)
        self.files = self._slot = None


def _take(place: Path) -> tuple[int, int]:
    """The number of a slot, and the descriptor that holds it."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if place.stat().st_uid != os.getuid():
        raise PermissionError(f"{place} belongs to somebody else")
    with closing(_Locked(place / _DOOR, wait=True)):
        free: dict[int, _Locked] = {}
        known = sorted(int(path.stem) for path in place.glob("*.slot"))
        for number in known:
            try:
                free[number] = _Locked(_slot(place, number), wait=False)
            except BlockingIOError:
                continue
        if len(free) == len(known):
            # Nobody counts here: these are of processes that are gone, perhaps of another version.
            for path in place.glob("*.db"):
                path.unlink()
        number = next(number for number in itertools.count() if number in free or number not in known)
        held = free.pop(number, None) or _Locked(_slot(place, number), wait=False)
        for other in free.values():
            other.close()
    return number, held.descriptor


def _slot(place: Path, number: int) -> Path:
    return place / f"{number}.slot"


class _Locked:
    """A lock that the kernel drops with the last descriptor: ours alone, as no program that we start inherits it."""

    def __init__(self, path: Path, *, wait: bool) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        os.close(self.descriptor)


class SlotValue:
    """A number of prometheus_client's that lives in the slot's files. Those are opened when it is first counted."""

    _multiprocess = True

    def __init__(
        self,
        typ: str,
        metric_name: str,
        name: str,
        labelnames: Any,
        labelvalues: Any,
        help_text: str,
        multiprocess_mode: str = "",
        **_: Any,
    ) -> None:
        self._kind = f"{typ}_{multiprocess_mode}" if typ == "gauge" else typ
        self._key = mmap_key(metric_name, name, labelnames, labelvalues, help_text)
        with _state.lock:
            _keys[self._kind].append(self._key)
            if (file := (_state.files or {}).get(self._kind)) is not None:
                file.read_value(self._key)

    def inc(self, amount: float) -> None:
        with _state.lock:
            if (file := (_state.files or {}).get(self._kind) or _state.file(self._kind)) is not None:
                value, _ = file.read_value(self._key)
                file.write_value(self._key, value + amount, 0.0)

    def set(self, value: float, timestamp: float | None = None) -> None:
        with _state.lock:
            if (file := _state.file(self._kind)) is not None:
                file.write_value(self._key, value, timestamp or 0.0)

    def get(self) -> float:
        """What this process's slot holds."""
        with _state.lock:
            file = _state.file(self._kind)
            return 0.0 if file is None else float(file.read_value(self._key)[0])

    def set_exemplar(self, exemplar: object) -> None:
        """The files have no room for any."""

    def get_exemplar(self) -> None:
        return None


_keys: defaultdict[str, list[str]] = defaultdict(list)
"""All there are, by the kind of metric: a histogram is told with all its buckets, or quantiles of it come out wrong."""

_state = _State()


def _after_fork() -> None:
    global _state
    inherited, _state = _state, _State()
    inherited.leave()


def _at_exit() -> None:
    with _state.lock:
        _state.leave()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
values.ValueClass = SlotValue

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest

from proxyfleet.local.processes import wait_until

DEADLINE = 30
"""Generous: reached only when what is waited for never comes."""


def is_alive(pid: int) -> bool:
    """Zombies are dead: whether anybody collects an orphan is up to the machine's first process."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for(condition: Callable[[], bool], what: str) -> None:
    if not wait_until(condition, DEADLINE):
        pytest.fail(f"{what} did not happen within {DEADLINE} s")

"""Gives the tests a PostgreSQL and a Valkey of their own, unless the environment names others.

Loaded by ``-p`` so that both addresses are in the environment before Django's settings are read.
"""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxyfleet.local.servers import LocalServers

SERVERS = ("PROXYFLEET_DATABASE_URL", "PROXYFLEET_BROKER_URL")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Comes before pytest-django reads the settings. Workers of pytest-xdist inherit the controller's servers."""
    os.environ.setdefault("PROXYFLEET_SECRET_KEY", "only for tests, where nothing is secret")
    if all(os.environ.get(name) for name in SERVERS):
        return
    signal.signal(signal.SIGTERM, _terminate)
    stack = ExitStack()
    early_config.add_cleanup(stack.close)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="proxyfleet-tests-"))
    servers = stack.enter_context(LocalServers(Path(folder), throwaway=True))
    os.environ["PROXYFLEET_DATABASE_URL"] = servers.database_url
    os.environ["PROXYFLEET_BROKER_URL"] = servers.broker_url


def _terminate(*_: object) -> None:
    """End in order, as after Ctrl-C, instead of dying on the spot."""
    pytest.exit("terminated", returncode=128 + signal.SIGTERM)

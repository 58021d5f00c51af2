"""Gives the tests a PostgreSQL and a Valkey of their own, unless the environment names others.

Loaded by ``-p`` so that both addresses are in the environment before Django's settings are read.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

import pytest

from proxyfleet.local.scratch import scratch_deployment

BROKER_DATABASES = 16
"""Valkey's, by default."""


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Comes before pytest-django reads the settings. Workers of pytest-xdist inherit the controller's servers."""
    # Tests ask in plain HTTP.
    os.environ.setdefault("PROXYFLEET_HTTPS", "false")
    signal.signal(signal.SIGTERM, _terminate)
    stack = ExitStack()
    early_config.add_cleanup(stack.close)
    stack.enter_context(scratch_deployment(os.environ))
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        # PostgreSQL's tests have a database for each worker; the messages of one are nothing for the others either.
        number = int(worker.removeprefix("gw")) % (BROKER_DATABASES - 1) + 1
        os.environ["PROXYFLEET_BROKER_URL"] += f"?virtual_host={number}"


def _terminate(*_: object) -> None:
    """End in order, as after Ctrl-C, instead of dying on the spot."""
    pytest.exit("terminated", returncode=128 + signal.SIGTERM)

"""Options and fixtures of the whole suite."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.cluster.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedules", type=int, default=1000, help="random schedules that the lifecycle's property test tries"
    )

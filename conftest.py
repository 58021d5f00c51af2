"""Options of the whole suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedules", type=int, default=1000, help="random schedules that the lifecycle's property test tries"
    )
    parser.addoption("--examples", type=int, default=5, help="requests that are made up for each call of the API")
    parser.addoption("--storm", type=float, default=4, help="seconds that each storm on the API processes lasts")

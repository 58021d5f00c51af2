from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from providers.gcp.driver import GcpProvider
from providers.gcp.tests.standin.backend import GceBackend
from providers.gcp.tests.standin.cloud import Cloud
from providers.gcp.tests.standin.server import ComputeServer
from providers.tests.contract import FLEET


class Time:
    """The backend's clock and the driver's: the present, and what a test lets pass."""

    def __init__(self) -> None:
        self.passed = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.passed


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def backend(time: Time) -> Iterator[GceBackend]:
    backend = GceBackend(time)
    yield backend
    backend.close()


@pytest.fixture
def server(backend: GceBackend) -> ComputeServer:
    return backend.server


@pytest.fixture
def cloud(backend: GceBackend) -> Cloud:
    return backend.cloud


@pytest.fixture
def provider(backend: GceBackend) -> GcpProvider:
    return backend.driver(fleet_id=FLEET)

from __future__ import annotations

from collections.abc import Iterator

import pytest

from providers.gcp.driver import GcpProvider
from providers.gcp.tests.standin.backend import GceBackend
from providers.gcp.tests.standin.cloud import Cloud
from providers.gcp.tests.standin.server import ComputeServer
from providers.tests.contract import FLEET


@pytest.fixture
def backend() -> Iterator[GceBackend]:
    backend = GceBackend()
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

"""The driver keeps the contract, with instances that come up at once and with such that take their time."""

from __future__ import annotations

import pytest

from providers.base import Provider
from providers.gcp.tests.requests import gcp_request
from providers.gcp.tests.standin.backend import GceBackend
from providers.tests.backend import Life
from providers.tests.contract import FLEET, FOREIGN_FLEET, Act, NewRequest, ProviderContract


class TestGcp(ProviderContract):
    @pytest.fixture
    def provider(self, backend: GceBackend) -> Provider:
        return backend.driver(fleet_id=FLEET)

    @pytest.fixture
    def another_worker(self, backend: GceBackend) -> Provider:
        return backend.driver(fleet_id=FLEET)

    @pytest.fixture
    def another_fleet_provider(self, backend: GceBackend) -> Provider:
        return backend.driver(fleet_id=FOREIGN_FLEET)

    @pytest.fixture
    def vanish(self, backend: GceBackend) -> Act:
        return backend.vanish

    @pytest.fixture
    def new_request(self) -> NewRequest:
        return gcp_request


class TestSlowGcp(TestGcp):
    @pytest.fixture(autouse=True)
    def slow(self, backend: GceBackend) -> None:
        backend.lives.extend([Life(provisioning_gets=3, addressless_gets=2, deleting_gets=2)] * 8)

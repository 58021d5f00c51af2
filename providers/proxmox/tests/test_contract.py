"""The promises that all drivers give, kept by this one."""

from __future__ import annotations

import pytest

from providers.proxmox.driver import ProxmoxProvider
from providers.proxmox.tests.conftest import Open
from providers.proxmox.tests.conftest import new_request as make
from providers.proxmox.tests.standin.cluster import Cluster
from providers.tests.contract import FOREIGN_FLEET, Act, NewRequest, ProviderContract


class TestContract(ProviderContract):
    @pytest.fixture
    def provider(self, open_provider: Open) -> ProxmoxProvider:
        return open_provider()

    @pytest.fixture
    def another_worker(self, open_provider: Open) -> ProxmoxProvider:
        return open_provider()

    @pytest.fixture
    def another_fleet_provider(self, open_provider: Open) -> ProxmoxProvider:
        return open_provider(fleet_id=FOREIGN_FLEET)

    @pytest.fixture
    def vanish(self, cluster: Cluster) -> Act:
        def vanish(provider_id: str) -> None:
            del cluster.guests[int(provider_id.split("/")[3])]

        return vanish

    @pytest.fixture
    def new_request(self) -> NewRequest:
        return make

"""The contract, on a real API server whose node is played by the tests."""

from __future__ import annotations

import logging

import pytest

from providers.base import Provider
from providers.errors import InvalidRequest
from providers.kubernetes.tests.conftest import Open
from providers.tests.contract import FOREIGN_FLEET, Act, NewRequest, ProviderContract
from tests.cluster.cluster import Cluster


@pytest.mark.usefixtures("kubelet")
class TestKubernetesProvider(ProviderContract):
    @pytest.fixture
    def provider(self, open_provider: Open) -> Provider:
        return open_provider()

    @pytest.fixture
    def another_worker(self, open_provider: Open) -> Provider:
        return open_provider()

    @pytest.fixture
    def another_fleet_provider(self, open_provider: Open) -> Provider:
        return open_provider(fleet_id=FOREIGN_FLEET)

    @pytest.fixture
    def vanish(self, cluster: Cluster) -> Act:
        def vanish(provider_id: str) -> None:
            namespace, name, _ = provider_id.partition("://")[2].split("/")
            cluster.kubectl("delete", "pod", name, "-n", namespace, "--now")

        return vanish

    def test_user_data_reaches_no_log(
        self, provider: Provider, new_request: NewRequest, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A pod can't take it; what is refused is not shown either."""
        caplog.set_level(logging.DEBUG)
        with pytest.raises(InvalidRequest, match="cloudInit") as refusal:
            provider.create(new_request(user_data=b"#cloud-config\npassword: hunter2-is-secret\n"))
        assert not provider.list().instances
        assert "hunter2" not in caplog.text + str(refusal.value) + refusal.value.detail

"""Both drivers keep the contract on a real libvirt, through a real sshd, with guests that boot."""

from __future__ import annotations

import pytest

from providers.base import Provider
from providers.tests.contract import FOREIGN_FLEET, Act, NewRequest, ProviderContract
from tests.kvm import entries
from tests.kvm.host import Host
from tests.kvm.sources import ImageServer

pytestmark = pytest.mark.timeout(600)


class TestKvm(ProviderContract):
    kind = "kvm"

    @pytest.fixture
    def provider(self, host: Host, images: ImageServer) -> Provider:
        return entries.provider(self.kind, entries.block(host, images))

    @pytest.fixture
    def another_worker(self, host: Host, images: ImageServer) -> Provider:
        return entries.provider(self.kind, entries.block(host, images))

    @pytest.fixture
    def another_fleet_provider(self, host: Host, images: ImageServer) -> Provider:
        return entries.provider(self.kind, entries.block(host, images), fleet_id=FOREIGN_FLEET)

    @pytest.fixture
    def vanish(self, host: Host) -> Act:
        def vanish(provider_id: str) -> None:
            uuid = provider_id.rpartition("/")[2]
            host.virsh("destroy", uuid)
            host.virsh("undefine", "--remove-all-storage", uuid)

        return vanish

    @pytest.fixture
    def new_request(self) -> NewRequest:
        return entries.tiny_request


class TestKvm2(TestKvm):
    kind = "kvm2"

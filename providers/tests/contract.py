"""One suite for every driver: the promises of ``providers.base.Provider``, each with its test.

A driver's tests subclass ProviderContract and override the fixtures that raise NotImplementedError.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from uuid import uuid4

import pytest

from providers.base import DeleteStyle, Provider
from providers.errors import Conflict, InstanceNotFound, InvalidRequest
from providers.instances import Identity, Instance, InstanceRequest, InstanceState, hash_instance
from providers.registry import entry_of

FLEET = "fleet-under-test"
FOREIGN_FLEET = "fleet-next-door"
DEADLINE_SECONDS = 240
"""Three guests boot at once, under emulation, on whatever else the machine does."""
POLL_SECONDS = 0.05

NewRequest = Callable[..., InstanceRequest]
Act = Callable[[str], None]


def make_request(*, fleet_id: str = FLEET, port: int = 3128, user_data: bytes | None = None) -> InstanceRequest:
    """A request for a proxy that nobody has asked for before."""
    uid = uuid4()
    identity = Identity(
        fleet_id=fleet_id,
        proxy_uid=uid,
        namespace="default",
        name=f"proxy-{uid.hex[:6]}",
        instance_hash=hash_instance({"port": port, "uid": str(uid)}),
    )
    return InstanceRequest(identity=identity, port=port, user_data=user_data)


def with_other_hash(request: InstanceRequest) -> InstanceRequest:
    """The same proxy made from something else, yet of the same name: only the digits that the name omits differ."""
    other_hash = request.identity.instance_hash[:8] + "0" * 8
    return replace(request, identity=replace(request.identity, instance_hash=other_hash))


def settle(provider: Provider, provider_id: str) -> Instance:
    """The instance once it runs and has an address."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        instance = provider.get(provider_id)
        assert instance.state in {InstanceState.PROVISIONING, InstanceState.RUNNING}, instance
        if instance.state is InstanceState.RUNNING and instance.address:
            return instance
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"{provider_id} has not come up in {DEADLINE_SECONDS} s")


def await_gone(provider: Provider, provider_id: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        try:
            instance = provider.get(provider_id)
        except InstanceNotFound:
            return
        assert instance.state is InstanceState.DELETING, instance
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"{provider_id} has not gone in {DEADLINE_SECONDS} s")


class ProviderContract:
    """What a caller may rely on, whatever the backend."""

    @pytest.fixture
    def provider(self) -> Provider:
        """The driver under test, as the entry of one fleet."""
        raise NotImplementedError

    @pytest.fixture
    def another_worker(self) -> Provider:
        """The same entry of the same fleet, in a process that knows nothing of the first."""
        raise NotImplementedError

    @pytest.fixture
    def another_fleet_provider(self) -> Provider:
        """The same backend and entry name, used by FOREIGN_FLEET."""
        raise NotImplementedError

    @pytest.fixture
    def vanish(self) -> Act:
        """Make the instance with this providerID disappear behind the driver's back."""
        raise NotImplementedError

    @pytest.fixture
    def new_request(self) -> NewRequest:
        """A factory of requests that the backend can fulfil."""
        return make_request

    def test_create_returns_the_identity_it_was_given(self, provider: Provider, new_request: NewRequest) -> None:
        request = new_request()
        instance = provider.create(request)
        assert instance.identity == request.identity
        assert instance.state in {InstanceState.PROVISIONING, InstanceState.RUNNING}

    def test_identity_is_read_back_from_the_backend(
        self, provider: Provider, another_worker: Provider, new_request: NewRequest
    ) -> None:
        request = new_request()
        created = provider.create(request)
        assert another_worker.get(created.provider_id).identity == request.identity
        assert [found.identity for found in another_worker.list()] == [request.identity]

    def test_the_provider_id_names_its_entry_and_needs_no_escaping(
        self, provider: Provider, new_request: NewRequest
    ) -> None:
        first, second = provider.create(new_request()), provider.create(new_request())
        assert first.provider_id != second.provider_id
        assert re.fullmatch(r"[a-z0-9-]+://[A-Za-z0-9._/-]+", first.provider_id)
        assert entry_of(first.provider_id) == entry_of(second.provider_id)

    def test_it_comes_up_with_an_address_of_its_own(self, provider: Provider, new_request: NewRequest) -> None:
        ids = [provider.create(new_request()).provider_id for _ in range(3)]
        running = [settle(provider, provider_id) for provider_id in ids]
        assert len({(instance.address, instance.port) for instance in running}) == 3
        for instance in running:
            assert instance.address is not None
            assert not ip_address(instance.address).is_link_local
            assert not ip_address(instance.address).is_unspecified

    def test_create_again_gives_the_same_instance(
        self, provider: Provider, another_worker: Provider, new_request: NewRequest
    ) -> None:
        request = new_request()
        first = provider.create(request)
        for again in (provider.create(request), another_worker.create(request)):
            assert again.provider_id == first.provider_id
            assert again.created_at == first.created_at
        assert len(provider.list().instances) == 1

    def test_concurrent_creates_give_one_instance(
        self, provider: Provider, another_worker: Provider, new_request: NewRequest
    ) -> None:
        request = new_request()
        with ThreadPoolExecutor(4) as pool:
            instances = list(pool.map(lambda worker: worker.create(request), [provider, another_worker] * 2))
        assert len({instance.provider_id for instance in instances}) == 1
        assert len(provider.list().instances) == 1

    def test_a_name_held_by_another_owner_is_not_adopted(self, provider: Provider, new_request: NewRequest) -> None:
        request = new_request()
        holder = provider.create(request)
        with pytest.raises(Conflict):
            provider.create(with_other_hash(request))
        assert provider.get(holder.provider_id).identity == request.identity

    def test_created_at_is_aware_recent_and_stable(
        self, provider: Provider, another_worker: Provider, new_request: NewRequest
    ) -> None:
        created = provider.create(new_request())
        assert created.created_at.tzinfo is not None
        assert abs(datetime.now(UTC) - created.created_at) < timedelta(minutes=5)
        assert another_worker.get(created.provider_id).created_at == created.created_at
        assert [found.created_at for found in another_worker.list()] == [created.created_at]

    def test_what_never_existed_is_not_found(self, provider: Provider, new_request: NewRequest) -> None:
        entry = entry_of(provider.create(new_request()).provider_id)
        for handle in ("no-such-instance/1", new_request().name, f"{new_request().name}/1", "../../etc"):
            with pytest.raises(InstanceNotFound):
                provider.get(f"{entry}://{handle}")
            provider.delete(f"{entry}://{handle}")
        assert len(provider.list().instances) == 1

    def test_another_entrys_provider_id_is_refused(self, provider: Provider) -> None:
        with pytest.raises(InvalidRequest):
            provider.get("another-entry://something/1")
        with pytest.raises(InvalidRequest):
            provider.delete("another-entry://something/1")

    def test_one_that_vanished_is_not_found_and_can_be_made_again(
        self, provider: Provider, new_request: NewRequest, vanish: Act
    ) -> None:
        request = new_request()
        lost = provider.create(request)
        vanish(lost.provider_id)
        with pytest.raises(InstanceNotFound):
            provider.get(lost.provider_id)
        assert not provider.list().instances

        again = provider.create(request)
        assert again.provider_id != lost.provider_id
        with pytest.raises(InstanceNotFound):
            provider.get(lost.provider_id)
        provider.delete(lost.provider_id)
        assert settle(provider, again.provider_id).provider_id == again.provider_id

    def test_delete_ends_in_not_found_and_is_repeatable(
        self, provider: Provider, another_worker: Provider, new_request: NewRequest
    ) -> None:
        doomed, bystander = provider.create(new_request()), provider.create(new_request())
        provider.delete(doomed.provider_id)
        if provider.profile.delete is DeleteStyle.GONE:
            with pytest.raises(InstanceNotFound):
                provider.get(doomed.provider_id)
        provider.delete(doomed.provider_id)
        await_gone(provider, doomed.provider_id)
        another_worker.delete(doomed.provider_id)
        assert [found.provider_id for found in provider.list()] == [bystander.provider_id]

    def test_another_fleet_neither_sees_nor_destroys_ours(
        self, provider: Provider, another_fleet_provider: Provider, new_request: NewRequest
    ) -> None:
        ours = provider.create(new_request())
        theirs = another_fleet_provider.create(new_request(fleet_id=FOREIGN_FLEET))
        assert [found.provider_id for found in provider.list()] == [ours.provider_id]
        assert [found.provider_id for found in another_fleet_provider.list()] == [theirs.provider_id]

        with pytest.raises(InstanceNotFound):
            another_fleet_provider.get(ours.provider_id)
        another_fleet_provider.delete(ours.provider_id)
        assert settle(provider, ours.provider_id).identity == ours.identity

    def test_an_empty_list_is_complete(self, provider: Provider) -> None:
        listing = provider.list()
        assert listing.instances == ()
        assert not listing.is_partial

    def test_check_names_its_targets(self, provider: Provider) -> None:
        targets = list(provider.check())
        assert targets
        assert [(target.ready, target.reason) for target in targets] == [(True, "Healthy")] * len(targets)

    def test_user_data_reaches_no_log(
        self, provider: Provider, new_request: NewRequest, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        request = new_request(user_data=b"#cloud-config\npassword: hunter2-is-secret\n")
        instance = provider.create(request)
        assert "hunter2" not in repr(request)
        assert "hunter2" not in repr(instance)
        assert "hunter2" not in caplog.text

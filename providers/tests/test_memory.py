"""The in-memory backend keeps the contract, and its faults do what the fleet's tests take for granted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from providers.base import Provider
from providers.errors import InstanceNotFound, QuotaExceeded, Unavailable
from providers.instances import InstanceState
from providers.tests.backend import Call, Crash, Fault, Life, lose_response, raising, refuse
from providers.tests.contract import FLEET, FOREIGN_FLEET, Act, ProviderContract, make_request
from providers.tests.memory import DEFAULT_ZONE, MemoryBackend


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend(clock=lambda: datetime.now(UTC))


@pytest.fixture
def memory(backend: MemoryBackend) -> Provider:
    return backend.provider("mem", fleet_id=FLEET)


class TestMemoryProvider(ProviderContract):
    @pytest.fixture
    def provider(self, memory: Provider) -> Provider:
        return memory

    @pytest.fixture
    def another_worker(self, backend: MemoryBackend) -> Provider:
        return backend.provider("mem", fleet_id=FLEET)

    @pytest.fixture
    def another_fleet_provider(self, backend: MemoryBackend) -> Provider:
        return backend.provider("mem", fleet_id=FOREIGN_FLEET)

    @pytest.fixture
    def vanish(self, backend: MemoryBackend) -> Act:
        return backend.vanish


class TestSlowMemoryProvider(TestMemoryProvider):
    """Submit and return, as a cloud does: everything takes a few looks."""

    @pytest.fixture
    def memory(self, backend: MemoryBackend) -> Provider:
        backend.lives.extend([Life(provisioning_gets=2, addressless_gets=1, deleting_gets=2)] * 8)
        return backend.provider("mem", fleet_id=FLEET)


def test_a_refused_create_makes_nothing(backend: MemoryBackend, memory: Provider) -> None:
    backend.faults[Call.CREATE].append(refuse(QuotaExceeded("no capacity")))
    with pytest.raises(QuotaExceeded, match="no capacity"):
        memory.create(make_request())
    assert not backend.machines()


def test_a_lost_response_leaves_the_instance_and_the_next_create_adopts_it(
    backend: MemoryBackend, memory: Provider
) -> None:
    backend.faults[Call.CREATE].append(lose_response())
    request = make_request()
    with pytest.raises(Unavailable):
        memory.create(request)
    (machine,) = backend.machines()
    assert memory.create(request).provider_id == machine.provider_id


def test_a_lost_response_of_delete_has_deleted(backend: MemoryBackend, memory: Provider) -> None:
    instance = memory.create(make_request())
    backend.faults[Call.DELETE].append(lose_response())
    with pytest.raises(Unavailable):
        memory.delete(instance.provider_id)
    assert not backend.machines()


@pytest.mark.parametrize(("fault", "made"), [(Fault(before=raising(Crash())), 0), (Fault(after=raising(Crash())), 1)])
def test_a_crash_strikes_before_or_after_the_side_effect(
    backend: MemoryBackend, memory: Provider, fault: Fault, made: int
) -> None:
    backend.faults[Call.CREATE].append(fault)
    with pytest.raises(Crash):
        memory.create(make_request())
    assert len(backend.machines()) == made


def test_another_worker_can_act_while_a_call_hangs(backend: MemoryBackend, memory: Provider) -> None:
    request = make_request()
    adopted: list[str] = []
    backend.faults[Call.CREATE].append(Fault(before=lambda: adopted.append(memory.create(request).provider_id)))
    assert memory.create(request).provider_id == adopted[0]


def test_a_late_failure_follows_provisioning(backend: MemoryBackend, memory: Provider) -> None:
    backend.lives.append(Life(provisioning_gets=2, fails="no capacity in this zone"))
    created = memory.create(make_request())
    states = [created.state, *(memory.get(created.provider_id).state for _ in range(2))]
    assert states == [InstanceState.PROVISIONING, InstanceState.PROVISIONING, InstanceState.FAILED]
    assert memory.get(created.provider_id).message == "no capacity in this zone"


def test_the_address_can_come_after_the_state(backend: MemoryBackend, memory: Provider) -> None:
    backend.lives.append(Life(addressless_gets=2))
    created = memory.create(make_request())
    addresses = [memory.get(created.provider_id).address for _ in range(2)]
    assert created.state is InstanceState.RUNNING
    assert (created.address, addresses[0]) == (None, None)
    assert addresses[1] is not None


def test_a_deletion_can_take_its_time_and_blocks_the_name(backend: MemoryBackend, memory: Provider) -> None:
    backend.lives.append(Life(deleting_gets=2))
    request = make_request()
    created = memory.create(request)
    memory.delete(created.provider_id)
    with pytest.raises(Unavailable):
        memory.create(request)
    assert memory.get(created.provider_id).state is InstanceState.DELETING
    with pytest.raises(InstanceNotFound):
        memory.get(created.provider_id)
    assert memory.create(request).provider_id != created.provider_id


def test_an_unreachable_zone_is_partial_and_never_gone(backend: MemoryBackend, memory: Provider) -> None:
    created = memory.create(make_request())
    backend.unreachable_zones.add(DEFAULT_ZONE)
    listing = memory.list()
    assert (listing.instances, listing.unreachable) == ((), (DEFAULT_ZONE,))
    with pytest.raises(Unavailable):
        memory.get(created.provider_id)
    with pytest.raises(Unavailable):
        memory.delete(created.provider_id)
    assert [(target.ready, target.reason) for target in memory.check()] == [(False, "Unreachable")]


def test_things_happen_behind_our_back(backend: MemoryBackend, memory: Provider) -> None:
    stopped, failed = memory.create(make_request()), memory.create(make_request())
    backend.stop(stopped.provider_id)
    backend.fail(failed.provider_id, "disk error")
    assert memory.get(stopped.provider_id).state is InstanceState.STOPPED
    assert memory.get(failed.provider_id).message == "disk error"

"""A compute backend in memory: what the fleet's tests run against. No threads, no clock, no randomness of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from threading import Lock
from typing import ClassVar

from providers.base import AddressSource, BehaviourProfile, CreateStyle, DeleteStyle, ListConsistency, Provider
from providers.checks import CheckReason
from providers.errors import Conflict, InstanceNotFound, InvalidRequest, Unavailable
from providers.instances import Identity, Instance, InstanceList, InstanceRequest, InstanceState, TargetCheck
from providers.registry import entry_of
from providers.tests.backend import Backend, Clock, Life

DEFAULT_ZONE = "memory"


@dataclass(slots=True)
class Machine:
    """One instance at the backend, with what is left of its life."""

    provider_id: str
    entry: str
    identity: Identity
    port: int
    zone: str
    address: str
    created_at: datetime
    life: Life
    looks: int = 0
    state: InstanceState = InstanceState.PROVISIONING
    deleting_looks: int | None = None
    message: str = ""

    def look(self) -> None:
        """One call of ``get`` passes."""
        if self.deleting_looks is not None:
            self.deleting_looks += 1
        else:
            self.looks += 1
            self.settle()

    def settle(self) -> None:
        if self.state is InstanceState.PROVISIONING and self.looks >= self.life.provisioning_gets:
            self.state = InstanceState.FAILED if self.life.fails else InstanceState.RUNNING
            self.message = self.life.fails

    @property
    def is_gone(self) -> bool:
        return self.deleting_looks is not None and self.deleting_looks >= self.life.deleting_gets

    def snapshot(self) -> Instance:
        has_address = (
            self.state is InstanceState.RUNNING
            and self.looks >= self.life.provisioning_gets + self.life.addressless_gets
        )
        return Instance(
            provider_id=self.provider_id,
            identity=self.identity,
            state=InstanceState.DELETING if self.deleting_looks is not None else self.state,
            created_at=self.created_at,
            address=self.address if has_address else None,
            port=self.port if has_address else None,
            message=self.message,
        )


class MemoryBackend(Backend):
    zone = DEFAULT_ZONE
    profile = BehaviourProfile(
        create=CreateStyle.SUBMITTED,
        delete=DeleteStyle.SUBMITTED,
        address=AddressSource.BACKEND,
        list_consistency=ListConsistency.IMMEDIATE,
        call_deadline_seconds=5,
        create_deadline_seconds=5,
        poll_seconds=1,
        relist_seconds=10,
        check_covers="every zone that instances are in or that is unreachable",
    )

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self._machines: dict[str, Machine] = {}
        self._serials = count(1)
        self._lock = Lock()

    def open(self, entry: str, *, fleet_id: str) -> Provider:
        return MemoryProvider(entry, fleet_id=fleet_id, backend=self)

    def machines(self) -> tuple[Instance, ...]:
        with self._lock:
            self._forget_the_gone()
            return tuple(machine.snapshot() for machine in self._machines.values())

    def recover(self) -> None:
        super().recover()
        for machine in self._machines.values():
            machine.life = Life()

    def vanish(self, provider_id: str) -> None:
        with self._lock:
            del self._machines[self._find(provider_id).identity.instance_name]

    def stop(self, provider_id: str) -> None:
        with self._lock:
            self._find(provider_id).state = InstanceState.STOPPED

    def fail(self, provider_id: str, message: str) -> None:
        with self._lock:
            machine = self._find(provider_id)
            machine.state, machine.message = InstanceState.FAILED, message

    def create(self, entry: str, request: InstanceRequest) -> Instance:
        with self._lock:
            self._forget_the_gone()
            machine = self._machines.get(request.name)
            if machine is None:
                machine = self._make(entry, request)
            elif machine.identity != request.identity:
                raise Conflict(f"the name {request.name} is held by another owner")
            elif machine.deleting_looks is not None:
                raise Unavailable(f"the previous {request.name} is still being deleted")
            return machine.snapshot()

    def get(self, fleet_id: str, provider_id: str) -> Instance:
        with self._lock:
            machine = self._find(provider_id)
            self._require_reachable(machine)
            if machine.identity.fleet_id != fleet_id:
                raise InstanceNotFound(f"{provider_id} is not ours")
            machine.look()
            self._forget_the_gone()
            return self._find(provider_id).snapshot()

    def delete(self, fleet_id: str, provider_id: str) -> None:
        with self._lock:
            try:
                machine = self._find(provider_id)
            except InstanceNotFound:
                return
            self._require_reachable(machine)
            if machine.identity.fleet_id == fleet_id and machine.deleting_looks is None:
                machine.deleting_looks = 0
            self._forget_the_gone()

    def list(self, entry: str, fleet_id: str) -> InstanceList:
        with self._lock:
            self._forget_the_gone()
            ours = [m for m in self.of_entry(entry) if m.identity.fleet_id == fleet_id]
            return InstanceList(
                instances=tuple(m.snapshot() for m in ours if m.zone not in self.unreachable_zones),
                unreachable=tuple(sorted(self.unreachable_zones)),
            )

    def of_entry(self, entry: str) -> Iterator[Machine]:
        return (machine for machine in self._machines.values() if machine.entry == entry)

    def _make(self, entry: str, request: InstanceRequest) -> Machine:
        serial = next(self._serials)
        machine = Machine(
            provider_id=f"{entry}://{request.name}/{serial}",
            entry=entry,
            identity=request.identity,
            port=request.port,
            zone=request.placement.zone or DEFAULT_ZONE,
            address=f"10.{serial >> 16 & 255}.{serial >> 8 & 255}.{serial & 255}",
            created_at=self.clock(),
            life=self.lives.popleft() if self.lives else Life(),
        )
        machine.settle()
        self._machines[request.name] = machine
        return machine

    def _find(self, provider_id: str) -> Machine:
        for machine in self._machines.values():
            if machine.provider_id == provider_id and not machine.is_gone:
                return machine
        raise InstanceNotFound(f"{provider_id} does not exist")

    def _require_reachable(self, machine: Machine) -> None:
        if machine.zone in self.unreachable_zones:
            raise Unavailable(f"zone {machine.zone} does not answer")

    def _forget_the_gone(self) -> None:
        self._machines = {name: machine for name, machine in self._machines.items() if not machine.is_gone}


class MemoryProvider:
    """One entry of the providers file, backed by a MemoryBackend."""

    profile: ClassVar[BehaviourProfile] = MemoryBackend.profile

    def __init__(self, entry: str, *, fleet_id: str, backend: MemoryBackend) -> None:
        self._entry = entry
        self._fleet_id = fleet_id
        self._backend = backend

    def create(self, request: InstanceRequest) -> Instance:
        return self._backend.create(self._entry, request)

    def get(self, provider_id: str) -> Instance:
        self._require_own(provider_id)
        return self._backend.get(self._fleet_id, provider_id)

    def delete(self, provider_id: str) -> None:
        self._require_own(provider_id)
        self._backend.delete(self._fleet_id, provider_id)

    def list(self) -> InstanceList:
        return self._backend.list(self._entry, self._fleet_id)

    def check(self) -> Iterable[TargetCheck]:
        zones = {machine.zone for machine in self._backend.of_entry(self._entry)}
        down = self._backend.unreachable_zones
        for zone in sorted(zones | down | {DEFAULT_ZONE}):
            reason = CheckReason.UNREACHABLE if zone in down else CheckReason.HEALTHY
            yield TargetCheck(name=zone, ready=zone not in down, reason=reason)

    def _require_own(self, provider_id: str) -> None:
        if entry_of(provider_id) != self._entry:
            raise InvalidRequest(f"{provider_id} was not made by provider {self._entry!r}")

"""A compute backend in memory that fails on command: what the fleet's tests run against.

Deterministic: no threads, no clock and no randomness of its own. Faults are queued per call; the life of an instance
(how many looks it takes to start, whether it fails late, how long its deletion lasts) is queued per create.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import count
from threading import Lock
from typing import ClassVar, TypeVar

from providers.base import AddressSource, BehaviourProfile, CreateStyle, DeleteStyle, ListConsistency
from providers.errors import Conflict, InstanceNotFound, InvalidRequest, ProviderError, Unavailable
from providers.instances import Identity, Instance, InstanceList, InstanceRequest, InstanceState, TargetCheck
from providers.registry import entry_of

T = TypeVar("T")
Hook = Callable[[], None]
DEFAULT_ZONE = "memory"


class Crash(BaseException):
    """The worker dies here. No Exception, so that nothing that handles errors can survive it by accident."""


class Call(StrEnum):
    CREATE = "create"
    GET = "get"
    DELETE = "delete"
    LIST = "list"


def _nothing() -> None:
    """The hook of a call that goes well."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens in the middle of one call, before and after its side effect.

    A hook may raise (a ProviderError, or Crash), or run anything else meanwhile: the call hangs for that long.
    """

    before: Hook = _nothing
    after: Hook = _nothing


def raising(error: BaseException) -> Hook:
    def hook() -> None:
        raise error

    return hook


def refuse(error: ProviderError) -> Fault:
    """The backend says no and does nothing."""
    return Fault(before=raising(error))


def lose_response() -> Fault:
    """The backend does it, but its answer never arrives."""
    return Fault(after=raising(Unavailable("the connection broke before the answer came")))


@dataclass(frozen=True, slots=True)
class Life:
    """How an instance behaves, counted in calls of ``get``. The default runs at once and goes at once."""

    provisioning_gets: int = 0
    addressless_gets: int = 0
    """Looks at the running instance before its address is known."""
    fails: str = ""
    """When set: what it says when it fails instead of starting to run."""
    deleting_gets: int = 0


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


@dataclass(slots=True)
class MemoryBackend:
    """State that all entries and all workers of a test share. Outlives a crash of any of them."""

    clock: Callable[[], datetime]
    faults: defaultdict[Call, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    """Taken from the left, one per call; a call without one goes well."""
    lives: deque[Life] = field(default_factory=deque)
    """Taken from the left, one per instance that is made; one without gets the default Life."""
    unreachable_zones: set[str] = field(default_factory=set)
    """Instances there are missing from ``list``, and ``get`` and ``delete`` of them are Unavailable."""
    _machines: dict[str, Machine] = field(default_factory=dict)
    _serials: count[int] = field(default_factory=lambda: count(1))
    _lock: Lock = field(default_factory=Lock)

    def machines(self) -> tuple[Machine, ...]:
        """All that exist, of all fleets, those being deleted included: what really costs money."""
        with self._lock:
            self._forget_the_gone()
            return tuple(self._machines.values())

    def vanish(self, provider_id: str) -> None:
        """Behind our back: gone, as a killed process or a VM that someone deleted by hand."""
        with self._lock:
            del self._machines[self._find(provider_id).identity.instance_name]

    def stop(self, provider_id: str) -> None:
        """Behind our back: still there, but stopped."""
        with self._lock:
            self._find(provider_id).state = InstanceState.STOPPED

    def fail(self, provider_id: str, message: str) -> None:
        """Behind our back: still there, but broken for good."""
        with self._lock:
            machine = self._find(provider_id)
            machine.state, machine.message = InstanceState.FAILED, message

    def next_fault(self, call: Call) -> Fault:
        queue = self.faults[call]
        return queue.popleft() if queue else Fault()

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
            ours = [m for m in self._machines.values() if m.entry == entry and m.identity.fleet_id == fleet_id]
            return InstanceList(
                instances=tuple(m.snapshot() for m in ours if m.zone not in self.unreachable_zones),
                unreachable=tuple(sorted(self.unreachable_zones)),
            )

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

    profile: ClassVar[BehaviourProfile] = BehaviourProfile(
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

    def __init__(self, entry: str, *, fleet_id: str, backend: MemoryBackend) -> None:
        self._entry = entry
        self._fleet_id = fleet_id
        self._backend = backend

    def create(self, request: InstanceRequest) -> Instance:
        return self._carry_out(Call.CREATE, lambda: self._backend.create(self._entry, request))

    def get(self, provider_id: str) -> Instance:
        self._require_own(provider_id)
        return self._carry_out(Call.GET, lambda: self._backend.get(self._fleet_id, provider_id))

    def delete(self, provider_id: str) -> None:
        self._require_own(provider_id)
        self._carry_out(Call.DELETE, lambda: self._backend.delete(self._fleet_id, provider_id))

    def list(self) -> InstanceList:
        return self._carry_out(Call.LIST, lambda: self._backend.list(self._entry, self._fleet_id))

    def check(self) -> Iterable[TargetCheck]:
        zones = {machine.zone for machine in self._backend.machines() if machine.entry == self._entry}
        down = self._backend.unreachable_zones
        for zone in sorted(zones | down | {DEFAULT_ZONE}):
            yield TargetCheck(name=zone, ready=zone not in down, reason="Unreachable" if zone in down else "Healthy")

    def _carry_out(self, call: Call, action: Callable[[], T]) -> T:
        fault = self._backend.next_fault(call)
        fault.before()
        result = action()
        fault.after()
        return result

    def _require_own(self, provider_id: str) -> None:
        if entry_of(provider_id) != self._entry:
            raise InvalidRequest(f"{provider_id} was not made by provider {self._entry!r}")

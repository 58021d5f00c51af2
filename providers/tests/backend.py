"""Backends that fail on command: what the fleet's tests need of one, in memory or behind a real driver.

Faults are queued per call; the life of an instance (how many looks it takes to start, whether it fails late, how long
its deletion lasts) is queued per create. Nothing here has a clock or randomness of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, TypeVar, cast

from providers.base import BehaviourProfile, Provider
from providers.errors import ProviderError, Unavailable
from providers.instances import Instance, InstanceList, InstanceRequest, TargetCheck

T = TypeVar("T")
Clock = Callable[[], datetime]
Hook = Callable[[], None]


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


class Backend(ABC):
    """State that all entries and all workers of a test share. Outlives a crash of any of them."""

    profile: ClassVar[BehaviourProfile]
    placement: ClassVar[Mapping[str, str]] = {}
    """What a spec must say for this backend to fulfil it."""
    zone: ClassVar[str]
    """Where instances are made."""

    def __init__(self) -> None:
        self.faults: defaultdict[Call, deque[Fault]] = defaultdict(deque)
        """Taken from the left, one per call; a call without one goes well."""
        self.lives: deque[Life] = deque()
        """Taken from the left, one per instance that is made; one without gets the default Life."""
        self.unreachable_zones: set[str] = set()
        """Instances there are missing from ``list``, and ``get`` and ``delete`` of them are Unavailable."""

    def provider(self, entry: str, *, fleet_id: str) -> Provider:
        """An entry of the providers file as a new worker has it; its calls meet the faults."""
        return cast("Provider", FaultyProvider(self.open(entry, fleet_id=fleet_id), self.faults))

    @abstractmethod
    def open(self, entry: str, *, fleet_id: str) -> Provider:
        """The driver under test."""

    @abstractmethod
    def machines(self) -> tuple[Instance, ...]:
        """All that exist, of all fleets, those being deleted included: what really costs money."""

    @abstractmethod
    def vanish(self, provider_id: str) -> None:
        """Behind our back: gone, as a killed process or a VM that someone deleted by hand."""

    @abstractmethod
    def stop(self, provider_id: str) -> None:
        """Behind our back: still there, but stopped."""

    @abstractmethod
    def fail(self, provider_id: str, message: str) -> None:
        """Behind our back: still there, but broken for good."""

    def recover(self) -> None:
        """All goes well from now on, with what exists too."""
        self.faults.clear()
        self.lives.clear()
        self.unreachable_zones.clear()

    def close(self) -> None:  # noqa: B027  most have nothing to give back
        """The test is over."""


class FaultyProvider:
    """A driver whose calls meet the faults that are queued for them."""

    def __init__(self, driver: Provider, faults: defaultdict[Call, deque[Fault]]) -> None:
        self._driver = driver
        self._faults = faults

    @property
    def profile(self) -> BehaviourProfile:
        return self._driver.profile

    def create(self, request: InstanceRequest) -> Instance:
        return self._carry_out(Call.CREATE, lambda: self._driver.create(request))

    def get(self, provider_id: str) -> Instance:
        return self._carry_out(Call.GET, lambda: self._driver.get(provider_id))

    def delete(self, provider_id: str) -> None:
        self._carry_out(Call.DELETE, lambda: self._driver.delete(provider_id))

    def list(self) -> InstanceList:
        return self._carry_out(Call.LIST, self._driver.list)

    def check(self) -> Iterable[TargetCheck]:
        return self._driver.check()

    def _carry_out(self, call: Call, action: Callable[[], T]) -> T:
        queue = self._faults[call]
        fault = queue.popleft() if queue else Fault()
        fault.before()
        result = action()
        fault.after()
        return result

"""The contract between the fleet and a compute backend: four verbs and a check.

docs/provider-contract.md states the rules and the caller behind each; ``providers/tests/contract.py`` tests them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol

from providers.instances import Instance, InstanceList, InstanceRequest, TargetCheck


class CreateStyle(StrEnum):
    """When ``create`` returns."""

    BLOCKING = "blocking"
    """Once the instance runs (or has failed)."""
    SUBMITTED = "submitted"
    """Once the backend accepted the request; progress is read by ``get``."""


class DeleteStyle(StrEnum):
    """What a successful ``delete`` means."""

    GONE = "gone"
    """The instance no longer exists when the call returns."""
    SUBMITTED = "submitted"
    """The backend accepted the request; ``get`` tells when it is gone."""


class AddressSource(StrEnum):
    """Where an instance's address is known from."""

    REQUESTED = "requested"
    BACKEND = "backend"
    GUEST = "guest"


class ListConsistency(StrEnum):
    """How soon a created instance shows in ``list``."""

    IMMEDIATE = "immediate"
    EVENTUAL = "eventual"


@dataclass(frozen=True, slots=True)
class BehaviourProfile:
    """How a driver differs from the others, as data: callers and the documentation both read it."""

    create: CreateStyle
    delete: DeleteStyle
    address: AddressSource
    list_consistency: ListConsistency
    call_deadline_seconds: float
    """Longest time that one call but ``create`` may take before the driver gives up with ``Unavailable``."""
    create_deadline_seconds: float
    """The same of ``create``, which may have an image to fetch or a boot to wait for."""
    poll_seconds: float
    """How often a changing instance is looked at."""
    relist_seconds: float
    """How often all instances are listed to notice those that vanished or stopped by themselves."""
    check_covers: str
    """What ``check`` proves, in one line."""


class Provider(Protocol):
    """A configured entry of the providers file. Safe to use from several threads and processes."""

    profile: ClassVar[BehaviourProfile]

    def create(self, request: InstanceRequest) -> Instance:
        """Make the instance that ``request`` names, or adopt it when an earlier try already made it.

        Raises Conflict when the name is held by another owner, and any other ProviderError but InstanceNotFound.
        """
        ...

    def get(self, provider_id: str) -> Instance:
        """The instance as it is now. Raises InstanceNotFound only when it is really gone."""
        ...

    def delete(self, provider_id: str) -> None:
        """Destroy the instance after checking that it carries this fleet's identity.

        Repeatable: an instance that is already gone is a success.
        """
        ...

    def list(self) -> InstanceList:
        """All instances that carry this fleet's tag, and which parts of the backend did not answer."""
        ...

    def check(self) -> Iterable[TargetCheck]:
        """Is each host, node or zone usable? Never disturbs a running call."""
        ...

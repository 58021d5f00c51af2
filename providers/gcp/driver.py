"""The ``gcp`` driver; the package says what it promises and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, cast

from google.cloud.compute_v1.types import Instance as Machine
from google.cloud.compute_v1.types import InstanceAggregatedList, Operation
from google.cloud.compute_v1.types import Warning as ScopeWarning

from providers.base import BehaviourProfile
from providers.blocks import GcpBlock
from providers.checks import CheckReason, reason_of
from providers.errors import Conflict, InstanceNotFound, InvalidRequest, ProviderError, Unavailable
from providers.gcp import mapping
from providers.gcp.calls import Compute, Deadline
from providers.gcp.mapping import Handle
from providers.gcp.refusals import NoAnswer, refusal_of
from providers.instances import Instance, InstanceList, InstanceRequest, InstanceState, TargetCheck
from providers.profiles import PROFILES
from providers.registry import entry_of

REFUSAL_HOLDS = timedelta(minutes=6)
"""How long a late refusal is reported before another try is made: longer than the fleet ever waits between noticing
that an instance is gone and asking for the next, so that the reason is always told."""

MOST_TRIES = 20
"""How many ended operations of one request are looked through; Compute Engine forgets request ids after an hour or so,
and REFUSAL_HOLDS lets no more than ten be made in one."""


def _now() -> datetime:
    return datetime.now(UTC)


class GcpProvider:
    """One entry of type ``gcp``. The clock is asked for the age of a refusal only, which the caller can't know."""

    profile: ClassVar[BehaviourProfile] = PROFILES["gcp"]

    def __init__(
        self,
        *,
        entry: str,
        block: GcpBlock,
        fleet_id: str,
        state_dir: Path,  # noqa: ARG002  every driver is called with one; this keeps nothing on disk
        endpoint: str | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._entry = entry
        self._block = block
        self._fleet_id = fleet_id
        self._compute = Compute(endpoint=endpoint)
        self._clock = clock

    def create(self, request: InstanceRequest) -> Instance:
        mapping.check_placement(request.placement)
        deadline = Deadline(self.profile.create_deadline_seconds)
        project, zone = self._block.project, request.placement.zone
        body = mapping.body_of(request, entry=self._entry, block=self._block)
        request_id = mapping.first_request_id(request.name)
        for _ in range(MOST_TRIES):
            operation = self._compute.insert(project, zone, body, request_id, deadline)
            if machine := self._compute.find(project, zone, request.name, deadline):
                return self._adopt(machine, request)
            if operation is None:
                raise Unavailable(f"{request.name} has just gone; its name is free in a moment")
            operation = self._compute.operation(project, zone, operation.name, deadline) or operation
            if operation.status != Operation.Status.DONE:
                return self._expected(operation, request)
            refusal = refusal_of(operation)
            if refusal and self._clock() - mapping.moment(operation.end_time) < REFUSAL_HOLDS:
                raise refusal
            request_id = mapping.next_request_id(request_id, operation)
        raise Unavailable(f"{request.name} was made {MOST_TRIES} times, and has gone each time")

    def get(self, provider_id: str) -> Instance:
        handle = self._handle(provider_id)
        instance = handle and self._find(handle, Deadline(self.profile.call_deadline_seconds))
        if not instance:
            raise InstanceNotFound(f"{provider_id} does not exist")
        return instance

    def delete(self, provider_id: str) -> None:
        deadline = Deadline(self.profile.call_deadline_seconds)
        handle = self._handle(provider_id)
        if handle and self._find(handle, deadline):
            self._compute.delete(handle.project, handle.zone, handle.id, deadline)

    def list(self) -> InstanceList:
        deadline = Deadline(self.profile.call_deadline_seconds)
        project = self._block.project
        instances: dict[str, Instance] = {}
        unreachable: set[str] = set()
        token = ""
        while True:
            page = self._compute.page(project, self._filter, deadline, token=token)
            unreachable |= _unreachable(page)
            for machine in (machine for scope in page.items.values() for machine in scope.instances):
                if instance := self._ours(machine, project):
                    instances[instance.provider_id] = instance
            token = page.next_page_token
            if not token:
                return InstanceList(tuple(instances.values()), unreachable=tuple(sorted(unreachable)))

    def check(self) -> Iterable[TargetCheck]:
        project = self._block.project
        try:
            page = self._compute.page(project, self._filter, Deadline(self.profile.call_deadline_seconds), most=1)
        except ProviderError as error:
            yield TargetCheck(project, ready=False, reason=_finding(error), message=str(error))
            return
        yield TargetCheck(project, ready=True, reason=CheckReason.HEALTHY)
        for zone in sorted(_unreachable(page)):
            yield TargetCheck(zone, ready=False, reason=CheckReason.UNREACHABLE, message="the zone does not answer")

    @property
    def _filter(self) -> str:
        return mapping.filter_of(self._entry, self._fleet_id)

    def _adopt(self, machine: Machine, request: InstanceRequest) -> Instance:
        instance = self._ours(machine, self._block.project)
        if instance is None or instance.identity != request.identity:
            raise Conflict(f"the name {request.name} is held by another owner")
        if instance.state is InstanceState.DELETING:
            raise Unavailable(f"the previous {request.name} is still being deleted")
        return instance

    def _expected(self, operation: Operation, request: InstanceRequest) -> Instance:
        """An instance that is being made and does not show yet."""
        if not operation.target_id:
            raise Unavailable(f"{request.name} was asked for and does not show yet")
        handle = Handle(self._block.project, request.placement.zone, request.name, operation.target_id)
        return Instance(
            provider_id=f"{self._entry}://{handle}",
            identity=request.identity,
            state=InstanceState.PROVISIONING,
            created_at=mapping.moment(operation.insert_time),
            port=request.port,
        )

    def _handle(self, provider_id: str) -> Handle | None:
        if entry_of(provider_id) != self._entry:
            raise InvalidRequest(f"{provider_id} was not made by provider {self._entry!r}")
        return Handle.parse(provider_id.partition("://")[2])

    def _find(self, handle: Handle, deadline: Deadline) -> Instance | None:
        """The very instance, if it is still there and ours."""
        machine = self._compute.find(handle.project, handle.zone, handle.name, deadline)
        return self._ours(machine, handle.project) if machine and machine.id == handle.id else None

    def _ours(self, machine: Machine, project: str) -> Instance | None:
        identity = mapping.identity_of(machine, entry=self._entry)
        if identity is None or identity.fleet_id != self._fleet_id:
            return None
        return mapping.instance_of(machine, identity, entry=self._entry, project=project)


def _unreachable(page: InstanceAggregatedList) -> set[str]:
    """Zones that a page of a list says nothing about: told as a whole, or each in its own scope."""
    # The SDK names the type of a warning like Python's own, which misleads the type checker.
    warned = {name: cast("ScopeWarning", scope.warning).code for name, scope in page.items.items()}
    scopes = [*page.unreachables, *(name for name, code in warned.items() if code == "UNREACHABLE")]
    return {scope.rpartition("/")[2] for scope in scopes}


def _finding(error: ProviderError) -> CheckReason:
    """The reason of ProviderHealth that stands for an error of a check."""
    match error:
        case NoAnswer(finding=finding):
            return CheckReason(finding)
        case Unavailable():
            return CheckReason.TIMEOUT
        case InvalidRequest():
            return CheckReason.MISCONFIGURED
    return reason_of(error)

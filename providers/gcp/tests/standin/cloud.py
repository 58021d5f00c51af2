"""What Compute Engine does with a request that is well-formed: its state and its rules."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from threading import RLock

from providers.gcp.tests.standin.answers import Json, Refused, invalid, not_found
from providers.gcp.tests.standin.resources import URL, Machine, Operation
from providers.gcp.tests.standin.rules import PROJECT, ZONES, check_instance, parse_filter
from providers.tests.backend import Clock, Life

REQUEST_IDS_KEPT = timedelta(hours=1)
OPERATIONS_KEPT = timedelta(days=14)
PERMISSIONS = {
    "instances.insert": "compute.instances.create",
    "instances.get": "compute.instances.get",
    "instances.delete": "compute.instances.delete",
    "instances.aggregatedList": "compute.instances.list",
    "zoneOperations.get": "compute.zoneOperations.get",
}


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: dict[str, str]
    query: dict[str, str]
    body: Json | None


class Cloud:
    """One project. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lives: deque[Life] = deque()
        """Taken from the left, one per instance that is made."""
        self.unreachable: set[str] = set()
        """Zones that do not answer."""
        self.tells_unreachable: frozenset[str] = frozenset({"unreachables", "warning"})
        """Where a list says so: for the page as a whole, in the zone's own scope, or both."""
        self.denied: set[str] = set()
        """Permissions that the account lacks."""
        self.instance_quota: int | None = None
        self.page_limit = 500
        """A page may always hold less than was asked for."""
        self.machines: list[Machine] = []
        self.operations: dict[str, Operation] = {}
        self._requests: dict[str, Operation] = {}
        self._numbers = count(4_000_000_000_000_000_000)
        self._lock = RLock()
        self._actions: dict[str, Callable[[Request], Json]] = {
            "instances.insert": self._insert,
            "instances.get": self._get,
            "instances.delete": self._delete,
            "instances.aggregatedList": self._aggregated_list,
            "zoneOperations.get": self._get_operation,
        }

    def carry_out(self, request: Request) -> Json:
        """Raises Refused."""
        with self._lock:
            self._check_access(request)
            return self._actions[request.method](request)

    # What happens without a request

    def find(self, number: int) -> Machine:
        return next(machine for machine in self.machines if machine.number == number)

    def vanish(self, number: int) -> None:
        """Someone deletes it, or its zone loses it."""
        with self._lock:
            machine = self.find(number)
            machine.insert.end(self.clock())
            self.machines.remove(machine)

    def stop(self, number: int, *, message: str = "", spot: bool = False) -> None:
        """It is stopped: by hand, by a broken host, or as a preempted Spot instance, which stays as TERMINATED."""
        with self._lock:
            machine = self.find(number)
            machine.insert.end(self.clock())
            machine.status, machine.status_message = "TERMINATED", message
            if spot:
                machine.body["scheduling"] = {"provisioningModel": "SPOT", "automaticRestart": False}

    def forget_operations(self) -> None:
        """Their records expire, and with them the request ids."""
        self.operations.clear()
        self._requests.clear()

    # The methods

    def _check_access(self, request: Request) -> None:
        project = request.path["project"]
        if project != PROJECT:
            raise not_found(f"projects/{project}")
        permission = PERMISSIONS[request.method]
        if permission in self.denied:
            raise Refused(403, "forbidden", f"Required '{permission}' permission for 'projects/{project}'")
        zone = request.path.get("zone")
        if zone is not None and zone not in ZONES:
            if request.method == "instances.insert":
                raise invalid("zone", zone, "Unknown zone.")
            raise not_found(f"projects/{project}/zones/{zone}")
        if zone in self.unreachable:
            raise Refused(503, "backendError", "Internal error. Please try again or contact Google Support.")

    def _insert(self, request: Request) -> Json:
        assert request.body is not None
        request_id = request.query.get("requestId", "")
        now = self.clock()
        known = self._requests.get(request_id)
        if known and now - known.inserted_at < REQUEST_IDS_KEPT:
            return known.resource()
        project, zone, body = request.path["project"], request.path["zone"], request.body
        path = f"projects/{project}/zones/{zone}/instances/{body['name']}"
        check_instance(body, zone)
        if any(machine.path == path for machine in self.machines):
            raise Refused(409, "alreadyExists", f"The resource '{path}' already exists")
        if self.instance_quota is not None and len(self.machines) >= self.instance_quota:
            raise Refused(403, "quotaExceeded", f"Quota 'INSTANCES' exceeded. Limit: {self.instance_quota}.0 globally.")
        number = next(self._numbers)
        operation = self._operate("insert", project, zone, path, number, request_id)
        self.machines.append(
            Machine(
                number=number,
                project=project,
                zone=zone,
                body=body,
                created_at=now,
                life=self.lives.popleft() if self.lives else Life(),
                insert=operation,
                address=f"34.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            )
        )
        return operation.resource()

    def _get(self, request: Request) -> Json:
        machine = self._machine(request)
        self._look(machine)
        return self._machine(request).resource()

    def _delete(self, request: Request) -> Json:
        machine = self._machine(request)
        if machine.deletion is None:
            if machine.is_coming_up:
                error = (409, "OPERATION_CANCELED_BY_USER", f"The resource '{machine.path}' is being deleted")
                machine.insert.end(self.clock(), error)
            machine.deletion = self._operate("delete", machine.project, machine.zone, machine.path, machine.number)
            machine.deleting_looks, machine.status = 0, "STOPPING"
            self._remove_gone(machine)
        return machine.deletion.resource()

    def _aggregated_list(self, request: Request) -> Json:
        matches = parse_filter(request.query.get("filter", ""))
        size = min(int(request.query.get("maxResults", "500")) or 500, self.page_limit)
        start = int(request.query.get("pageToken") or 0)
        found = sorted((m for m in self.machines if matches(m)), key=lambda m: (m.zone, m.name))
        places = [(m.zone, m) for m in found if m.zone not in self.unreachable]
        shown, rest = places[start : start + size], places[start + size :]
        # A zone is told as unreachable on the page that its instances would be on, which need not be the last.
        due = {zone for zone in self.unreachable if _page_of(zone, [zone for zone, _ in places], size) * size == start}
        answer: Json = {"kind": "compute#instanceAggregatedList", "id": f"projects/{PROJECT}/aggregated/instances"}
        answer["items"] = {f"zones/{zone}": self._scope(zone, shown, due) for zone in ZONES}
        if due and "unreachables" in self.tells_unreachable:
            answer["unreachables"] = [f"{URL}projects/{PROJECT}/zones/{zone}" for zone in sorted(due)]
        if rest:
            answer["nextPageToken"] = str(start + size)
        return answer

    def _scope(self, zone: str, shown: list[tuple[str, Machine]], due: set[str]) -> Json:
        if zone in due and "warning" in self.tells_unreachable:
            return {"warning": _warning("UNREACHABLE", "A given scope cannot be reached.", zone)}
        if here := [machine.resource() for place, machine in shown if place == zone]:
            return {"instances": here}
        return {"warning": _warning("NO_RESULTS_ON_PAGE", "There are no results for scope on this page.", zone)}

    def _get_operation(self, request: Request) -> Json:
        project, zone, name = (request.path[part] for part in ("project", "zone", "operation"))
        for operation in self.operations.values():
            if operation.zone == zone and name in (operation.name, str(operation.number)):
                if self.clock() - operation.inserted_at < OPERATIONS_KEPT:
                    return operation.resource()
                break
        raise not_found(f"projects/{project}/zones/{zone}/operations/{name}")

    # How things move on

    def _operate(
        self, kind: str, project: str, zone: str, target: str, target_id: int, request_id: str = ""
    ) -> Operation:
        operation = Operation(next(self._numbers), kind, project, zone, target, target_id, self.clock(), request_id)
        self.operations[operation.name] = operation
        if request_id:
            self._requests[request_id] = operation
        return operation

    def _machine(self, request: Request) -> Machine:
        zone, name = request.path["zone"], request.path["instance"]
        for machine in self.machines:
            if machine.zone == zone and name in (machine.name, str(machine.number)):
                return machine
        raise not_found(f"projects/{request.path['project']}/zones/{zone}/instances/{name}")

    def _look(self, machine: Machine) -> None:
        if machine.deleting_looks is not None:
            machine.deleting_looks += 1
            self._remove_gone(machine)
            return
        machine.looks += 1
        if not machine.is_coming_up:
            return
        if machine.looks <= machine.life.provisioning_gets:
            machine.status = "PROVISIONING" if machine.looks == 1 else "STAGING"
        elif machine.life.fails:
            machine.insert.end(self.clock(), _late_error(machine.life.fails))
            self.machines.remove(machine)
        else:
            machine.status = "RUNNING"
            machine.insert.end(self.clock())

    def _remove_gone(self, machine: Machine) -> None:
        if machine.is_gone:
            assert machine.deletion is not None
            machine.deletion.end(self.clock())
            self.machines.remove(machine)


def _page_of(zone: str, places: list[str], size: int) -> int:
    before = sum(place < zone for place in places)
    return min(before, max(len(places) - 1, 0)) // size


def _warning(code: str, message: str, zone: str) -> Json:
    return {"code": code, "message": message, "data": [{"key": "scope", "value": f"zones/{zone}"}]}


def _late_error(told: str) -> tuple[int, str, str]:
    """From "CODE: message"; what has no code is an accident inside Compute Engine."""
    code, separator, message = told.partition(": ")
    if not (separator and re.fullmatch("[A-Z_]+", code)):
        return 503, "INTERNAL_ERROR", told
    return (403 if "QUOTA" in code else 503 if "EXHAUSTED" in code else 400), code, message

"""Instances and operations, and how they move on."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from providers.gcp.tests.standin.answers import Json
from providers.tests.backend import Life

PACIFIC = timezone(timedelta(hours=-8))
URL = "https://www.googleapis.com/compute/v1/"


def stamp(moment: datetime) -> str:
    """As Google writes it: in its own time zone, with milliseconds."""
    return moment.astimezone(PACIFIC).isoformat(timespec="milliseconds")


@dataclass(slots=True)
class Operation:
    number: int
    type: str
    project: str
    zone: str
    target: str
    target_id: int
    inserted_at: datetime
    request_id: str = ""
    ended_at: datetime | None = None
    error: tuple[int, str, str] | None = None
    """HTTP status, code and message."""

    @property
    def name(self) -> str:
        return f"operation-{self.number}-5f0c-{self.target_id:x}"

    def end(self, now: datetime, error: tuple[int, str, str] | None = None) -> None:
        if self.ended_at is None:
            self.ended_at, self.error = now, error

    def resource(self) -> Json:
        resource: Json = {
            "kind": "compute#operation",
            "id": str(self.number),
            "name": self.name,
            "zone": f"{URL}projects/{self.project}/zones/{self.zone}",
            "operationType": self.type,
            "targetLink": f"{URL}{self.target}",
            "targetId": str(self.target_id),
            "status": "DONE" if self.ended_at else "RUNNING",
            "progress": 100 if self.ended_at else 0,
            "insertTime": stamp(self.inserted_at),
            "startTime": stamp(self.inserted_at),
            "selfLink": f"{URL}projects/{self.project}/zones/{self.zone}/operations/{self.name}",
        }
        if self.request_id:
            resource["clientOperationId"] = self.request_id
        if self.ended_at:
            resource["endTime"] = stamp(self.ended_at)
        if self.error:
            status, code, message = self.error
            resource["httpErrorStatusCode"] = status
            resource["httpErrorMessage"] = {403: "FORBIDDEN", 409: "CONFLICT", 503: "SERVICE UNAVAILABLE"}.get(
                status, "BAD REQUEST"
            )
            resource["error"] = {"errors": [{"code": code, "message": message}]}
        return resource


@dataclass(slots=True)
class Machine:
    """An instance; each look at it, by ``get``, moves it on."""

    number: int
    project: str
    zone: str
    body: Json
    created_at: datetime
    life: Life
    insert: Operation
    address: str
    status: str = "PROVISIONING"
    status_message: str = ""
    looks: int = 0
    deleting_looks: int | None = None
    deletion: Operation | None = field(default=None)

    @property
    def name(self) -> str:
        return str(self.body["name"])

    @property
    def path(self) -> str:
        return f"projects/{self.project}/zones/{self.zone}/instances/{self.name}"

    @property
    def is_coming_up(self) -> bool:
        return self.status in {"PROVISIONING", "STAGING"}

    @property
    def is_gone(self) -> bool:
        return self.deleting_looks is not None and self.deleting_looks >= self.life.deleting_gets

    def resource(self) -> Json:
        return self.body | {
            "kind": "compute#instance",
            "id": str(self.number),
            "zone": f"{URL}projects/{self.project}/zones/{self.zone}",
            "selfLink": f"{URL}{self.path}",
            "machineType": f"{URL}projects/{self.project}/{self.body['machineType']}",
            "creationTimestamp": stamp(self.created_at),
            "status": self.status,
            "networkInterfaces": [self._interface(given) for given in self.body["networkInterfaces"]],
            **({"statusMessage": self.status_message} if self.status_message else {}),
        }

    def _interface(self, given: Json) -> Json:
        shown = {"kind": "compute#networkInterface", "name": "nic0", "networkIP": "10.132.0.2"}
        has_address = self.status == "RUNNING" and self.looks > self.life.provisioning_gets + self.life.addressless_gets
        address = {"natIP": self.address} if has_address else {}
        configs = [config | {"kind": "compute#accessConfig"} | address for config in given.get("accessConfigs", ())]
        return given | shown | ({"accessConfigs": configs} if configs else {})

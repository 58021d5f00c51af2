"""From a request to the body of an insert, and from what Compute Engine says back to the contract's terms. Pure."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from providers.blocks import GcpBlock
from providers.errors import InvalidRequest
from providers.instances import Identity, Instance, InstanceRequest, InstanceState, Placement

if TYPE_CHECKING:
    from google.cloud.compute_v1.types import Instance as Machine
    from google.cloud.compute_v1.types import Operation

FLEET, ENTRY, UID, HASH = "proxyfleet-fleet", "proxyfleet-entry", "proxyfleet-uid", "proxyfleet-hash"
"""Labels: what a list is filtered by, and what an instance is known by."""
NAMESPACE, NAME, PORT = "proxyfleet-namespace", "proxyfleet-name", "proxyfleet-port"
"""Metadata: a label holds neither dots nor more than 63 characters, as these may."""

METADATA_VALUE_BYTES = 262_144

_RESOURCE_NAME = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
_HANDLE = re.compile(
    rf"(?P<project>[a-z0-9.:-]+)/(?P<zone>{_RESOURCE_NAME})/(?P<name>{_RESOURCE_NAME})/(?P<id>[1-9]\d*)"
)
_REQUEST_IDS = UUID("c5b5d2f4-4a83-4b5e-9d3b-6a0f6a0c3d54")

STATES = {
    "PENDING": InstanceState.PROVISIONING,
    "PROVISIONING": InstanceState.PROVISIONING,
    "STAGING": InstanceState.PROVISIONING,
    "REPAIRING": InstanceState.PROVISIONING,
    "RUNNING": InstanceState.RUNNING,
    # On its way to TERMINATED or to nothing: which of the two shows later, and to wait is right in both cases.
    "PENDING_STOP": InstanceState.DELETING,
    "STOPPING": InstanceState.DELETING,
    "DEPROVISIONING": InstanceState.DELETING,
    "STOPPED": InstanceState.STOPPED,
    "TERMINATED": InstanceState.STOPPED,
    "SUSPENDING": InstanceState.STOPPED,
    "SUSPENDED": InstanceState.STOPPED,
}
"""A status that is not here is newer than this table: it is waited out as provisioning, never taken for an end."""


@dataclass(frozen=True, slots=True)
class Handle:
    """What a providerID says, after the entry's name."""

    project: str
    zone: str
    name: str
    id: int

    @classmethod
    def parse(cls, text: str) -> Handle | None:
        """None for what no create of this driver can have returned."""
        match = _HANDLE.fullmatch(text)
        return cls(match["project"], match["zone"], match["name"], int(match["id"])) if match else None

    def __str__(self) -> str:
        return f"{self.project}/{self.zone}/{self.name}/{self.id}"


def check_placement(placement: Placement) -> None:
    """Raises InvalidRequest, which names every field that is missing, or one that can't be right."""
    fields = {
        "placement.zone": placement.zone,
        "placement.machineType": placement.machine_type,
        "placement.image": placement.image,
    }
    if missing := [field for field, value in fields.items() if not value]:
        raise InvalidRequest(f"a provider of type gcp needs {', '.join(missing)}")
    for field in ("placement.zone", "placement.machineType"):
        if not re.fullmatch(_RESOURCE_NAME, fields[field]):
            raise InvalidRequest(f"{field}: {fields[field]!r} is no name of Compute Engine, such as e2-small")


def first_request_id(name: str) -> UUID:
    """The same for each repetition of a create, so that Compute Engine carries out the first alone."""
    return uuid5(_REQUEST_IDS, name)


def next_request_id(before: UUID, operation: Operation) -> UUID:
    """For another try, once what ``before`` asked for has ended; again the same for all who ask."""
    return uuid5(before, str(operation.id))


def body_of(request: InstanceRequest, *, entry: str, block: GcpBlock) -> dict[str, Any]:
    """The resource to insert. Raises InvalidRequest for user-data that is too long."""
    identity, placement = request.identity, request.placement
    metadata = {
        NAMESPACE: identity.namespace,
        NAME: identity.name,
        PORT: str(request.port),
        **_user_data(request.user_data),
    }
    return {
        "name": request.name,
        "machine_type": f"zones/{placement.zone}/machineTypes/{placement.machine_type}",
        "labels": {
            FLEET: identity.fleet_id,
            ENTRY: entry,
            UID: identity.proxy_uid.hex,
            HASH: identity.instance_hash,
        },
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata.items()]},
        "tags": {"items": [block.network_tag]},
        "disks": [
            {
                "boot": True,
                "auto_delete": True,
                "initialize_params": {
                    "source_image": placement.image if "/" in placement.image else f"global/images/{placement.image}",
                    "disk_size_gb": block.disk_size_gb,
                },
            }
        ],
        "network_interfaces": [
            {
                "network": block.network if "/" in block.network else f"global/networks/{block.network}",
                # An external address is given only to whom asks for one.
                "access_configs": [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}],
            }
        ],
    }


def _user_data(content: bytes | None) -> dict[str, str]:
    """Metadata is text: what is not goes as base64, which cloud-init undoes, so the guest gets it byte for byte."""
    if content is None:
        return {}
    try:
        items = {"user-data": content.decode()}
    except UnicodeDecodeError:
        items = {"user-data": b64encode(content).decode(), "user-data-encoding": "base64"}
    if (size := len(items["user-data"].encode())) > METADATA_VALUE_BYTES:
        raise InvalidRequest(
            f"cloudInit: Compute Engine takes {METADATA_VALUE_BYTES} bytes of user-data, these are {size}"
        )
    return items


def filter_of(entry: str, fleet_id: str) -> str:
    return f'(labels.{FLEET} = "{fleet_id}") (labels.{ENTRY} = "{entry}")'


def identity_of(machine: Machine, *, entry: str) -> Identity | None:
    """Whose it is; None when it is not of this entry."""
    labels, metadata = machine.labels, _metadata(machine)
    if labels.get(ENTRY) != entry:
        return None
    try:
        return Identity(
            fleet_id=labels[FLEET],
            proxy_uid=UUID(hex=labels[UID]),
            namespace=metadata[NAMESPACE],
            name=metadata[NAME],
            instance_hash=labels[HASH],
        )
    except (KeyError, ValueError):
        return None


def handle_of(machine: Machine, project: str) -> Handle:
    return Handle(project, machine.zone.rpartition("/")[2], machine.name, machine.id)


def instance_of(machine: Machine, identity: Identity, *, entry: str, project: str) -> Instance:
    port = _metadata(machine).get(PORT, "")
    return Instance(
        provider_id=f"{entry}://{handle_of(machine, project)}",
        identity=identity,
        state=STATES.get(machine.status, InstanceState.PROVISIONING),
        created_at=moment(machine.creation_timestamp),
        address=_address_of(machine),
        port=int(port) if port.isdecimal() else None,
        message=_explain(machine),
    )


def moment(timestamp: str) -> datetime:
    """From RFC 3339, with Google's offset in it."""
    return datetime.fromisoformat(timestamp)


def _metadata(machine: Machine) -> dict[str, str]:
    return {item.key: item.value for item in machine.metadata.items}


def _address_of(machine: Machine) -> str | None:
    """The external address; it may come later than the state, and an instance that is not up has none."""
    for interface in machine.network_interfaces:
        for access in interface.access_configs:
            if access.nat_i_p:
                return access.nat_i_p
    return None


def _explain(machine: Machine) -> str:
    if machine.status == "RUNNING":
        return ""
    told = machine.status_message or (
        "preempted, or stopped by someone"
        if machine.scheduling.provisioning_model == "SPOT" and machine.status in {"STOPPING", "TERMINATED"}
        else ""
    )
    return f"Compute Engine says {machine.status}" + (f": {told}" if told else "")

"""What PVE accepts: for each call its parameters and the privileges that it asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

BOOLEAN, INTEGER, TEXT = r"[01]", r"-?\d+", r"(?s).*"
VMID = r"[1-9]\d{2,8}"
NODE = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
STORAGE = r"[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]"
DNS_NAME = r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
TAG = re.compile(r"[a-z0-9_][a-z0-9_\-+.]*", re.IGNORECASE)
TAGS = r"[A-Za-z0-9_+.;, -]*"

TYPE_NAMES = {BOOLEAN: "boolean", INTEGER: "integer", VMID: "integer"}
PATH_RULES = {"node": NODE, "vmid": VMID, "storage": STORAGE, "volume": r".+", "upid": r".+"}


@dataclass(frozen=True)
class Route:
    """``privileges`` are needed on the path beside them; of a set one is enough."""

    method: str
    path: str
    name: str
    required: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    privileges: tuple[tuple[str, frozenset[str]], ...] = ()
    is_upload: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\{(\w+)\}", lambda part: f"(?P<{part[1]}>[^/]+)", self.path))

    def complaints(self, given: Mapping[str, str]) -> dict[str, str]:
        """What PVE finds wrong with the parameters, by name; empty when nothing is."""
        rules = {**self.required, **self.optional, **PATH_RULES}
        problems = {}
        for name, value in given.items():
            if name not in self.required and name not in self.optional and f"{{{name}}}" not in self.path:
                problems[name] = "property is not defined in schema and the schema does not allow additional properties"
            elif not re.fullmatch(rules[name], value):
                kind = TYPE_NAMES.get(rules[name], "string")
                problems[name] = f"type check ('{kind}') failed - got '{value}'"
        return problems | {
            name: "property is missing and it is not optional" for name in self.required if name not in given
        }


def one_of(path: str, *privileges: str) -> tuple[str, frozenset[str]]:
    return path, frozenset(privileges)


VM = "/nodes/{node}/qemu/{vmid}"
AUDIT = (one_of("/vms/{vmid}", "VM.Audit"),)
POWER = (one_of("/vms/{vmid}", "VM.PowerMgmt"),)
CONFIG_PRIVILEGES = {
    "tags": "VM.Config.Options",
    "agent": "VM.Config.Options",
    "description": "VM.Config.Options",
    "cores": "VM.Config.CPU",
    "memory": "VM.Config.Memory",
    "net0": "VM.Config.Network",
    "ide2": "VM.Config.CDROM",
}

ROUTES = (
    Route("GET", "/version", "version"),
    Route("GET", "/nodes", "nodes"),
    Route("GET", "/access/permissions", "permissions", optional={"path": TEXT, "userid": TEXT}),
    Route("GET", "/cluster/resources", "resources", optional={"type": "vm|storage|node|sdn"}),
    Route("GET", "/cluster/nextid", "nextid", optional={"vmid": VMID}),
    Route("GET", f"{VM}/config", "config", optional={"current": BOOLEAN}, privileges=AUDIT),
    Route(
        "PUT",
        f"{VM}/config",
        "configure",
        optional={
            "tags": TAGS,
            "description": r"(?s).{0,8192}",
            "cores": r"[1-9]\d*",
            "memory": r"[1-9]\d*",
            "net0": r"(virtio|e1000)(=[0-9A-F:]{17})?,bridge=[\w.-]+(,tag=\d+)?",
            "agent": r"[01](,.*)?",
            "ide2": r"[^,]+,media=cdrom",
            "digest": r"[0-9a-f]{0,40}",
            "delete": r"[a-z0-9,]+",
        },
        privileges=(one_of("/vms/{vmid}", *CONFIG_PRIVILEGES.values()),),
    ),
    Route("GET", f"{VM}/status/current", "status", privileges=AUDIT),
    Route("POST", f"{VM}/status/start", "start", optional={"timeout": INTEGER}, privileges=POWER),
    Route("POST", f"{VM}/status/stop", "stop", optional={"timeout": INTEGER}, privileges=POWER),
    Route(
        "POST",
        f"{VM}/clone",
        "clone",
        required={"newid": VMID},
        optional={
            "name": DNS_NAME,
            "description": TEXT,
            "full": BOOLEAN,
            "storage": STORAGE,
            "target": NODE,
            "pool": TEXT,
            "format": "raw|qcow2|vmdk",
        },
        privileges=(one_of("/vms/{vmid}", "VM.Clone"), one_of("/vms/{newid}", "VM.Allocate")),
    ),
    Route(
        "DELETE",
        VM,
        "destroy",
        optional={"purge": BOOLEAN, "destroy-unreferenced-disks": BOOLEAN},
        privileges=(one_of("/vms/{vmid}", "VM.Allocate"),),
    ),
    Route(
        "GET",
        f"{VM}/agent/network-get-interfaces",
        "interfaces",
        privileges=(one_of("/vms/{vmid}", "VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"),),
    ),
    Route(
        "GET",
        "/nodes/{node}/storage/{storage}/status",
        "storage_status",
        privileges=(one_of("/storage/{storage}", "Datastore.Audit", "Datastore.AllocateSpace"),),
    ),
    Route(
        "POST",
        "/nodes/{node}/storage/{storage}/upload",
        "upload",
        required={"content": "iso|vztmpl|import", "filename": r".{1,255}"},
        optional={"checksum-algorithm": "md5|sha1|sha224|sha256|sha384|sha512", "checksum": r"[0-9a-f]+"},
        privileges=(one_of("/storage/{storage}", "Datastore.AllocateTemplate"),),
        is_upload=True,
    ),
    Route(
        "DELETE",
        "/nodes/{node}/storage/{storage}/content/{volume}",
        "delete_volume",
        optional={"delay": INTEGER},
        privileges=(one_of("/storage/{storage}", "Datastore.Allocate"),),
    ),
    Route("GET", "/nodes/{node}/network", "network", optional={"type": "any_bridge|bridge"}),
    Route("GET", "/nodes/{node}/tasks/{upid}/status", "task_status"),
    Route("GET", "/nodes/{node}/tasks/{upid}/log", "task_log", optional={"start": INTEGER, "limit": INTEGER}),
)

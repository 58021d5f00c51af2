"""The stand-in refuses what PVE refuses, and asks for the parameters that PVE's own description has."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme

from providers.proxmox.tests.standin.cluster import ALL_PRIVILEGES, TEMPLATE, TOKEN, Cluster, PveError, normalised_tags
from providers.proxmox.tests.standin.rules import ROUTES, Route
from providers.proxmox.tests.standin.server import PveServer

DESCRIPTION = Path(
    os.environ.get("PVE_API_DESCRIPTION")
    or Path(__file__).parents[3] / ".." / "shared" / "contracts" / "pve-api.subset.json"
)
UPLOAD = "/nodes/pve1/storage/local/upload"


@pytest.fixture
def call(server: PveServer, authority: trustme.CA, tmp_path: Path) -> Any:
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")

    def call(method: str, path: str, token: str = TOKEN, **content: Any) -> requests.Response:
        return requests.request(
            method,
            f"{server.url}/api2/json{path}",
            headers={"Authorization": f"PVEAPIToken={token}"} if token else {},
            verify=str(tmp_path / "authority.pem"),
            timeout=5,
            **content,
        )

    return call


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "reason"),
    [
        ("GET", "/nodes", {"token": ""}, 401, "No ticket"),
        ("GET", "/nodes", {"token": "fleet@pve!driver=wrong"}, 401, "Authentication failed!"),
        (
            "GET",
            "/nodes/pve1/qemu/777/config",
            {},
            500,
            "Configuration file 'nodes/pve1/qemu-server/777.conf' ",
        ),
        ("GET", "/nodes/pve9/qemu/777/config", {}, 500, "hostname lookup 'pve9' failed"),
        ("GET", "/nodes/pve1/storage/x1/status", {}, 400, "Parameter verification failed."),
        ("GET", "/cluster/nextid?vmid=9000", {}, 400, "Parameter verification failed."),
        ("POST", "/nodes/pve1/qemu/9000/clone", {"data": {}}, 400, "Parameter verification failed."),
        ("POST", "/nodes/pve1/qemu/9000/clone", {"data": {"newid": 777, "full": True}}, 400, "Parameter"),
        ("POST", "/nodes/pve1/qemu/9000/clone", {"data": {"newid": 777, "nmae": "x"}}, 400, "Parameter"),
        ("POST", "/nodes/pve1/qemu/9000/clone", {"data": {"newid": 777, "name": "a_b"}}, 400, "Parameter"),
        (
            "POST",
            "/nodes/pve1/qemu/9000/clone",
            {"data": {"newid": 777, "storage": "local-lvm"}},
            500,
            "parameter '",
        ),
        (
            "POST",
            "/nodes/pve1/qemu/9000/clone",
            {"data": {"newid": 9000}},
            500,
            "unable to create VM 9000",
        ),
        ("PUT", "/nodes/pve1/qemu/9000/config", {}, 500, "no options specified"),
        ("PUT", "/nodes/pve1/qemu/9000/config", {"data": {"cores": 1, "digest": "0"}}, 500, "checksum mismatch"),
        ("DELETE", "/nodes/pve1/qemu/9000", {"data": {"purge": 1}}, 501, "Unexpected content for method 'DELETE'"),
        ("GET", "/nodes/pve1/tasks/UPID:x/status", {}, 400, "Parameter verification failed."),
    ],
)
def test_refusals(call: Any, method: str, path: str, content: dict[str, Any], status: int, reason: str) -> None:
    answer = call(method, path, **content)
    assert answer.status_code == status
    assert answer.reason.startswith(reason)


def test_privileges_are_checked_before_existence(call: Any, cluster: Cluster) -> None:
    cluster.tokens[TOKEN]["/vms"] = ALL_PRIVILEGES - {"VM.Audit"}
    answer = call("GET", "/nodes/pve1/qemu/777/config")
    assert (answer.status_code, answer.reason) == (403, "Permission check failed (/vms/777, VM.Audit)")
    assert call("GET", "/cluster/resources?type=vm").json() == {"data": []}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda fields: fields[::-1],
        lambda fields: [fields[0], fields[2], fields[1], fields[3]],
        lambda fields: [*fields[:3], ("extra", (None, "1")), fields[3]],
        lambda fields: [*fields[:3], ("file", fields[3][1])],
        lambda fields: [*fields[:3], ("filename", ("seed.txt", b"seed"))],
    ],
)
def test_an_upload_is_read_as_a_stream(call: Any, cluster: Cluster, spoil: Any) -> None:
    fields = [
        ("content", (None, "iso")),
        ("checksum-algorithm", (None, "sha256")),
        ("checksum", (None, hashlib.sha256(b"seed").hexdigest())),
        ("filename", ("seed.iso", b"seed")),
    ]
    assert call("POST", UPLOAD, files=spoil(fields)).status_code >= 400
    assert not cluster.storages["local"].files
    assert call("POST", UPLOAD, files=fields).ok
    assert cluster.storages["local"].files == {"iso/seed.iso": b"seed"}


def test_a_wrong_checksum_fails_the_task(call: Any, cluster: Cluster) -> None:
    fields = [
        ("content", (None, "iso")),
        ("checksum-algorithm", (None, "md5")),
        ("checksum", (None, "00")),
        ("filename", ("seed.iso", b"seed")),
    ]
    upid = call("POST", UPLOAD, files=fields).json()["data"]
    status = call("GET", f"/nodes/pve1/tasks/{upid}/status").json()["data"]
    assert (status["status"], status["exitstatus"][:17]) == ("stopped", "checksum mismatch")
    assert "TASK ERROR" in call("GET", f"/nodes/pve1/tasks/{upid}/log").json()["data"][-1]["t"]


def test_tags_are_normalised() -> None:
    assert normalised_tags("Web, fleet-a;web;B.2") == "b.2;fleet-a;web"
    with pytest.raises(PveError):
        normalised_tags("-dash")


def test_a_clone_copies_what_marks_its_template(call: Any, cluster: Cluster) -> None:
    call("POST", f"/nodes/pve1/qemu/{TEMPLATE}/clone", data={"newid": 777})
    copied = {key: cluster.guests[777].config[key] for key in ("tags", "description", "ide2")}
    assert copied == {key: cluster.guests[TEMPLATE].config[key] for key in copied}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_the_rules_are_those_of_pves_own_description(route: Route) -> None:
    if not DESCRIPTION.is_file():
        pytest.skip(f"PVE's API description is not there: PVE_API_DESCRIPTION names none, and {DESCRIPTION} is no file")
    paths = json.loads(DESCRIPTION.read_text())["paths"]
    described = paths.get(route.path, {}).get(route.method)
    if described is None:
        pytest.skip("that description has not this call")
    properties = described["parameters"].get("properties", {})
    required = {name for name, rule in properties.items() if not rule.get("optional")}
    in_path = {name for name in required if f"{{{name}}}" in route.path}
    assert set(route.required) == required - in_path
    assert all(name in properties or name.rstrip("0123456789") + "[n]" in properties for name in route.optional)
    stated = described.get("permissions", {}).get("check")
    if stated:
        for _, privileges in route.privileges:
            assert all(json.dumps(name) in json.dumps(stated) for name in privileges)
        assert route.privileges

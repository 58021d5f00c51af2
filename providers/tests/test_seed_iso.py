"""Seed images, asked by the tools that a guest reads them with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pycdlib import PyCdlib

from providers.cloudinit import GUEST_AGENT_SCRIPT, vendor_data
from providers.seed_iso import build_seed_iso

TOOLS = Path(__file__).parents[2] / ".tools" / "seed"
"""Filled by scripts/fetch-seed-tools, which `make test` runs."""

USER_DATA = b"## template: jinja\n#cloud-config\n\xff\x00 any bytes \xfe" + bytes(range(256)) * 20
NETWORK_CONFIG = b"version: 2\n"
OPERATORS = "#cloud-config\nntp:\n  servers: [ntp.example.com]\n"

READ_AS_CLOUD_INIT_DOES = """
import json, sys
sys.path.append(sys.argv[2])
from cloudinit import helpers, user_data, util
from cloudinit.sources import DataSourceNoCloud
seed = util.pathprefix2dict(sys.argv[1], required=["user-data", "meta-data"], optional=["vendor-data"])
parts = user_data.UserDataProcessor(helpers.Paths({})).process(seed["vendor-data"]).walk()
print(json.dumps({
    "user-data": seed["user-data"].hex(),
    "meta-data": util.load_yaml(seed["meta-data"]),
    "vendor-data": [(p.get_content_type(), p.get_payload(decode=True).decode()) for p in parts if not p.is_multipart()],
}))
"""


def seed(**changes: Any) -> bytes:
    usual = {
        "instance_id": "1234",
        "hostname": "proxy-1",
        "user_data": USER_DATA,
        "vendor_data": vendor_data(OPERATORS, install_guest_agent=True),
        "network_config": NETWORK_CONFIG,
    }
    return build_seed_iso(**usual | changes)


def files_of(image: bytes) -> dict[str, bytes]:
    iso = PyCdlib()
    iso.open_fp(BytesIO(image))
    files = {}
    for record in iso.list_children(rr_path="/"):
        name = record.rock_ridge.name().decode()
        if record.is_file():
            content = BytesIO()
            iso.get_file_from_iso_fp(content, joliet_path=f"/{name}")
            files[name] = content.getvalue()
    iso.close()
    return files


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "seed.iso"
    path.write_bytes(seed())
    return path


def test_every_file_is_there_byte_for_byte() -> None:
    files = files_of(seed())
    assert files.keys() == {"user-data", "meta-data", "vendor-data", "network-config"}
    assert files["user-data"] == USER_DATA
    assert files["network-config"] == NETWORK_CONFIG


def test_user_data_and_meta_data_alone_make_a_seed() -> None:
    bare = files_of(seed(user_data=None, vendor_data=None, network_config=None))
    assert bare["user-data"] == b""
    assert bare.keys() == {"user-data", "meta-data"}
    assert json.loads(bare["meta-data"]) == {"instance-id": "1234", "local-hostname": "proxy-1"}


def test_the_same_seed_has_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = seed()
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    assert seed() == first
    assert seed(instance_id="1235") != first


def test_vendor_data_is_left_out_when_nobody_asks_for_it() -> None:
    assert vendor_data("", install_guest_agent=False) is None
    assert vendor_data(OPERATORS, install_guest_agent=False) == OPERATORS.encode()
    assert vendor_data("", install_guest_agent=True) == GUEST_AGENT_SCRIPT.encode()


def test_the_script_is_valid_shell() -> None:
    subprocess.run(["sh", "-n"], input=GUEST_AGENT_SCRIPT.encode(), check=True)


def test_blkid_knows_its_label(image: Path) -> None:
    blkid = shutil.which("blkid", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if blkid is None:
        pytest.skip("there is no blkid (Debian: apt install util-linux)")
    printed = subprocess.run([blkid, "-p", "-o", "export", image], capture_output=True, text=True, check=True).stdout
    assert {"LABEL=cidata", "TYPE=iso9660"} <= set(printed.split())


@pytest.mark.parametrize("extension", ["-R", "-J"])
def test_isoinfo_lists_the_files(image: Path, extension: str) -> None:
    isoinfo = shutil.which("isoinfo") or shutil.which(TOOLS / "usr/bin/isoinfo")
    if isoinfo is None:
        pytest.skip("there is no isoinfo: run scripts/fetch-seed-tools")
    printed = subprocess.run([isoinfo, extension, "-f", "-i", image], capture_output=True, text=True, check=True).stdout
    assert set(printed.split()) == {"/meta-data", "/network-config", "/user-data", "/vendor-data"}


@pytest.mark.parametrize("operators", [OPERATORS, vendor_data(OPERATORS, install_guest_agent=True)])
def test_cloud_init_reads_it(tmp_path: Path, operators: str | bytes) -> None:
    """The operator's vendor-data, whether plain or MIME, and the script both arrive; the owner's data is untouched."""
    if not TOOLS.is_dir():
        pytest.skip("there is no cloud-init: run scripts/fetch-seed-tools")
    text = operators if isinstance(operators, str) else operators.decode()
    for name, content in files_of(seed(vendor_data=vendor_data(text, install_guest_agent=True))).items():
        (tmp_path / name).write_bytes(content)
    code = TOOLS / "usr/lib/python3/dist-packages"
    printed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ_AS_CLOUD_INIT_DOES, tmp_path, code],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    read = json.loads(printed)
    assert bytes.fromhex(read["user-data"]) == USER_DATA
    assert read["meta-data"] == {"instance-id": "1234", "local-hostname": "proxy-1"}
    parts = [tuple(part) for part in read["vendor-data"]]
    assert parts[0] == ("text/cloud-config", OPERATORS)
    assert set(parts[1:]) == {("text/x-shellscript", GUEST_AGENT_SCRIPT)}

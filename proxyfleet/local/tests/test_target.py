from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from proxyfleet.local.addresses import Address, free_port
from proxyfleet.local.target import Certificates
from proxyfleet.local.tests.waiting import DEADLINE, wait_for


@dataclass(frozen=True)
class Running:
    https: str
    http: str
    authority: str


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Running]:
    folder = tmp_path / "target"
    https, http = free_port(), free_port()
    ports = ["--https-port", str(https), "--http-port", str(http)]
    process = subprocess.Popen([sys.executable, "-m", "proxyfleet.local.target", "--folder", str(folder), *ports])
    try:
        wait_for(Address("127.0.0.1", http).answers, "the target's answer")
        yield Running(f"https://localhost:{https}", f"http://127.0.0.1:{http}", str(folder / "ca.pem"))
    finally:
        process.terminate()
        assert process.wait(DEADLINE) == 0


def test_tells_who_asked_over_verified_tls(target: Running) -> None:
    response = requests.get(
        f"{target.https}/v1/whoami", headers={"X-Seen": "yes"}, verify=target.authority, timeout=DEADLINE
    )
    assert response.json()["ip"] == "127.0.0.1"
    assert response.json()["headers"]["X-Seen"] == "yes"


def test_serves_the_same_in_plain_http(target: Running) -> None:
    assert requests.get(f"{target.http}/generate_204", timeout=DEADLINE).status_code == 204
    assert "It works" in requests.get(target.http, timeout=DEADLINE).text
    assert requests.get(f"{target.http}/else", timeout=DEADLINE).status_code == 404


def test_is_not_trusted_without_its_authority(target: Running) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(target.https, timeout=DEADLINE)


def test_survives_clients_that_speak_no_http(target: Running) -> None:
    address = Address.parse(target.https.removeprefix("https://localhost").replace(":", "127.0.0.1:", 1))
    assert not address.answers()
    assert requests.get(target.https, verify=target.authority, timeout=DEADLINE).ok


def test_keeps_its_certificates(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "target")
    certificates.prepare()
    first = certificates.authority.read_bytes()
    certificates.prepare()
    assert certificates.authority.read_bytes() == first
    assert certificates.folder.stat().st_mode & 0o077 == 0

"""The whole road with a proxy that others wrote: proxy.py, as a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from health.probes import probe
from health.results import Outcome, ProbeRequest, ProbeResult, ProxyCredentials, Stage
from health.tests.conftest import Certificates
from health.tests.peers import answer, serving

WHOAMI = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n{"ip": "127.0.0.1"}'
CREDENTIALS = ProxyCredentials("crawler", "secret")


@pytest.fixture(scope="module")
def proxy_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port_file: Path = tmp_path_factory.mktemp("proxy") / "port"
    options = [
        "--hostname",
        "127.0.0.1",
        "--port",
        "0",
        "--port-file",
        str(port_file),
        "--basic-auth",
        "crawler:secret",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "proxy", "--num-workers", "1", "--num-acceptors", "1", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        give_up_at = time.monotonic() + 30
        while not (port_file.exists() and port_file.read_text().strip()):
            assert process.poll() is None, "proxy.py ended at once"
            assert time.monotonic() < give_up_at, "proxy.py does not listen"
            time.sleep(0.05)
        yield int(port_file.read_text().splitlines()[0])
    finally:
        process.terminate()
        process.wait(timeout=20)


def _probe(
    certificates: Certificates, port: int, scheme: str, credentials: ProxyCredentials | None
) -> ProbeResult[int]:
    async def run() -> ProbeResult[int]:
        tls = certificates.trusted if scheme == "https" else None
        async with serving(answer(WHOAMI), tls=tls) as target:
            url = f"{scheme}://localhost:{target.port}/"
            request = ProbeRequest(1, "127.0.0.1", port, url, 20, credentials=credentials)
            return await probe(request, certificates.prober)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("scheme", "stages"),
    [("http", [Stage.CONNECT, Stage.RESPONSE]), ("https", list(Stage))],
)
def test_fetches_through_a_real_proxy(
    certificates: Certificates, proxy_port: int, scheme: str, stages: list[Stage]
) -> None:
    result = _probe(certificates, proxy_port, scheme, CREDENTIALS)
    assert (result.outcome, result.status, result.egress_ip) == (Outcome.OK, 200, "127.0.0.1"), result.message
    assert list(result.seconds) == stages


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_real_proxy_asks_for_credentials(certificates: Certificates, proxy_port: int, scheme: str) -> None:
    result = _probe(certificates, proxy_port, scheme, None)
    assert (result.outcome, result.status) == (Outcome.PROXY_AUTH_REQUIRED, 407)

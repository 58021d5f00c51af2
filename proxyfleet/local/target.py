"""A TLS endpoint of this machine's own, for probes to fetch where there is no internet.

``GET /v1/whoami`` tells who asked, ``GET /generate_204`` answers 204, and ``GET /`` is a page to look at.
Plain HTTP is on a second port.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import trustme

from proxyfleet.local.folders import private_folder

HOST = "127.0.0.1"
NAMES = ("localhost", "127.0.0.1", "::1")
REQUEST_SECONDS = 10
REQUEST_BYTES = 1 << 16
PAGE = b"<!doctype html><title>proxyfleet target</title><h1>It works</h1><p>You reached the local probe target.</p>\n"


@dataclass(frozen=True, slots=True)
class Certificates:
    """A certificate for this machine's names and the authority that signed it, made once in ``folder``."""

    folder: Path

    @property
    def authority(self) -> Path:
        """PEM file for clients to trust."""
        return self.folder / "ca.pem"

    @property
    def server(self) -> Path:
        """PEM file of the private key and the certificate."""
        return self.folder / "server.pem"

    def prepare(self) -> None:
        """Raises LocalError when the folder can't be written."""
        if self.folder.exists():
            return
        fresh = private_folder(self.folder.with_name(f"{self.folder.name}.new"))
        authority = trustme.CA()
        certificate = authority.issue_cert(*NAMES)
        made = Certificates(fresh)
        authority.cert_pem.write_to_path(made.authority)
        certificate.private_key_and_cert_chain_pem.write_to_path(made.server)
        shutil.move(fresh, self.folder)


@dataclass(frozen=True, slots=True)
class Target:
    """Both listeners. A port of 0 is chosen by the system."""

    certificates: Certificates
    https_port: int = 0
    http_port: int = 0

    async def start(self) -> tuple[asyncio.Server, asyncio.Server]:
        """Listens when it returns: the https server, then the http server. Raises OSError when a port is taken."""
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(self.certificates.server)
        https = await asyncio.start_server(_serve, HOST, self.https_port, ssl=tls, limit=REQUEST_BYTES)
        http = await asyncio.start_server(_serve, HOST, self.http_port, limit=REQUEST_BYTES)
        return https, http


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request and close: a probe opens a connection for each."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_SECONDS)
        writer.write(_respond(head.decode("latin-1"), writer.get_extra_info("peername")[0]))
        await writer.drain()
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ssl.SSLError):
        pass  # A client that went away, or that speaks something else, gets no answer.
    finally:
        writer.close()


def _respond(head: str, client: str) -> bytes:
    request_line, *header_lines = head.rstrip().split("\r\n")
    method, _, rest = request_line.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    headers = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in header_lines)}
    status, content_type, body = _route(path, client, headers)
    answer = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        *([f"Content-Type: {content_type}", f"Content-Length: {len(body)}"] if status != HTTPStatus.NO_CONTENT else []),
        "Connection: close",
    ]
    return "\r\n".join([*answer, "", ""]).encode() + (b"" if method == "HEAD" else body)


def _route(path: str, client: str, headers: Mapping[str, str]) -> tuple[HTTPStatus, str, bytes]:
    match path:
        case "/v1/whoami":
            return HTTPStatus.OK, "application/json", json.dumps({"ip": client, "headers": headers}).encode()
        case "/generate_204":
            return HTTPStatus.NO_CONTENT, "", b""
        case "/":
            return HTTPStatus.OK, "text/html; charset=utf-8", PAGE
        case _:
            return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"Nothing here.\n"


async def _run(target: Target) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    https, http = await target.start()
    async with https, http:
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proxyfleet.local.target", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the certificates are kept")
    parser.add_argument("--https-port", type=int, default=0)
    parser.add_argument("--http-port", type=int, default=0)
    arguments = parser.parse_args()
    certificates = Certificates(arguments.folder)
    certificates.prepare()
    asyncio.run(_run(Target(certificates, arguments.https_port, arguments.http_port)))


if __name__ == "__main__":
    main()

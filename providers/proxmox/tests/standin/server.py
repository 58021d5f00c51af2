"""PVE's HTTP side on loopback: TLS, tokens, strict parameters, uploads read as a stream, faults on any call."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from providers.proxmox.tests.standin.cluster import Cluster, PveError
from providers.proxmox.tests.standin.rules import ROUTES, Route

AUTHORIZATION = re.compile(r"PVEAPIToken[= ](\S+)")
UPLOAD_FIELDS = ("content", "checksum-algorithm", "checksum")
PART = re.compile(rb'Content-Disposition: form-data; name="([^"]+)"(?:; filename="([^"]+)")?\r\n(?:[^\r\n]+\r\n)*\r\n')
HANDLERS = {"nodes": "nodes_"}


class Reset(Exception):
    """The connection breaks: the client never learns what happened."""


@dataclass
class Fault:
    """Meets calls whose ``METHOD /path`` matches ``call``: ``before`` and ``after`` run around what the call does.

    They may raise PveError or Reset, or wait. ``times`` calls are met, after ``skip`` others that match.
    """

    call: str
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    times: int = 1
    skip: int = 0


def raising(error: Exception) -> Callable[[], None]:
    def hook() -> None:
        raise error

    return hook


def breaking(moment: str, *, skip: int) -> Fault:
    """The connection breaks in one call of any kind: ``before`` it is carried out, or ``after``."""
    hook = raising(Reset())
    return Fault(
        ".*", before=hook if moment == "before" else None, after=hook if moment == "after" else None, skip=skip
    )


class PveServer(ThreadingHTTPServer):
    """Serves one cluster at ``url`` until ``close``."""

    daemon_threads = True

    def __init__(self, cluster: Cluster, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.cluster = cluster
        self.faults: list[Fault] = []
        self.calls: list[str] = []
        self._tls = tls
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        # The handshake is left to the connection's own thread.
        connection, address = super().get_request()
        return self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle are part of the tests."""

    def fault_for(self, call: str) -> Fault | None:
        with self.cluster.lock:
            for fault in self.faults:
                if re.fullmatch(fault.call, call):
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    if not fault.times:
                        self.faults.remove(fault)
                    return fault
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: PveServer

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(self.server.cluster.clock().timestamp())

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urlsplit(self.path).path.removeprefix("/api2/json")
        call = f"{self.command} {unquote(path)}"
        self.server.calls.append(call)
        fault = self.server.fault_for(call)
        try:
            if fault and fault.before:
                fault.before()
            data = self._carry_out(path, body)
            if fault and fault.after:
                fault.after()
        except PveError as error:
            self._refuse(error)
        except Reset:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._answer(200, "OK", json.dumps({"data": data}).encode())

    def _carry_out(self, path: str, body: bytes) -> Any:
        token, cluster = self._token(), self.server.cluster
        for route in ROUTES:
            if route.method == self.command and (found := route.pattern.fullmatch(path)):
                break
        else:
            raise PveError(501, f"Method '{self.command} {path}' not implemented")
        given = {name: unquote(value) for name, value in found.groupdict().items()}
        given |= self._parameters(route, body)
        with cluster.lock:
            for where, privileges in route.privileges:
                cluster.require(token, where.format_map({"newid": "0"} | given), privileges)
            if (node := given.get("node")) is not None:
                if node not in cluster.nodes:
                    raise PveError(500, f"hostname lookup '{node}' failed - failed to get address info for: {node}")
                if node in cluster.offline:
                    raise PveError(595, "No route to host")
            if complaints := route.complaints(
                {k: v for k, v in given.items() if not (route.is_upload and k == "data")}
            ):
                raise PveError(400, "Parameter verification failed.", complaints)
            if route.is_upload:
                given["content"] = given.pop("data")
            return getattr(cluster, HANDLERS.get(route.name, route.name))(token, **given)

    def _token(self) -> str:
        header = self.headers.get("Authorization")
        if header is None:
            raise PveError(401, "No ticket")
        found = AUTHORIZATION.fullmatch(header)
        if found is None or found[1] not in self.server.cluster.tokens:
            raise PveError(401, "Authentication failed!")
        return found[1]

    def _parameters(self, route: Route, body: bytes) -> dict[str, str]:
        query = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        if self.command == "DELETE" and body:
            raise PveError(501, "Unexpected content for method 'DELETE'")
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            raise PveError(501, "chunked transfer encoding not supported")
        if route.is_upload:
            return _upload(self.headers.get("Content-Type", ""), body)
        if len(body) > 512 * 1024:
            raise PveError(501, "for data too large")
        return query | dict(parse_qsl(body.decode(), keep_blank_values=True))

    def _refuse(self, error: PveError) -> None:
        message: dict[str, Any] = {"data": None, "message": f"{error.text}\n"}
        if error.errors:
            message["errors"] = error.errors
        empty = error.status == 401 or error.status >= 595
        self._answer(error.status, error.text, b"" if empty else json.dumps(message).encode())

    def _answer(self, status: int, reason: str, body: bytes) -> None:
        self.close_connection = status >= 400
        self.send_response(status, reason)
        self.send_header("Content-Type", "application/json;charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        if status >= 400:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _upload(content_type: str, body: bytes) -> dict[str, str]:
    """Three fields in this order at most, then the file, whose header PVE matches letter by letter."""
    boundary = content_type.partition("boundary=")[2].encode()
    fields: dict[str, str] = {}
    for part in body.split(b"--" + boundary)[1:-1]:
        found = PART.match(part.removeprefix(b"\r\n"))
        if found is None:
            raise PveError(500, "upload failed: unexpected part header")
        name, content = found[1].decode(), part.removeprefix(b"\r\n")[found.end() :].removesuffix(b"\r\n")
        if found[2] is not None:
            if name != "filename":
                raise PveError(500, f"upload failed: wrong field name '{name}' for file upload")
            return fields | {"filename": found[2].decode(), "data": content.decode("latin-1")}
        if name != next((field for field in UPLOAD_FIELDS[len(fields) :]), None):
            raise PveError(500, f"upload failed: unexpected field '{name}'")
        fields[name] = content.decode()
    raise PveError(500, "upload failed: no file")

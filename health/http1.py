"""The little of HTTP/1.1 that a probe speaks: pure functions over bytes, strict about bounds, lenient about style."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from functools import lru_cache

from pydantic import AnyHttpUrl, TypeAdapter

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9]\d\d)(?: [^\r\n]*)?\r?\n")
_STATUS_LINE_START = b"HTTP/1."
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[^\r\n]*\r?\n")
_URL = TypeAdapter(AnyHttpUrl)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class HTTPFormatError(Exception):
    """The peer's bytes are not HTTP/1.x; the message says in what way, and never quotes them."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a probe URL leads."""

    scheme: str
    host: str
    """Without brackets, as TLS wants it."""
    port: int
    path: str
    """Path and query, as the request line wants them."""

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port, as CONNECT wants them."""
        return f"{self._bracketed_host}:{self.port}"

    @property
    def host_header(self) -> str:
        return self._bracketed_host if self.port == _DEFAULT_PORTS[self.scheme] else self.authority

    @property
    def _bracketed_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


@lru_cache(maxsize=1024)
def parse_target(url: str) -> Target:
    """Take a probe URL apart, by the same rules as the declaration's validator: other hosts than ASCII become punycode.

    Raises ValueError when no probe can fetch it.
    """
    try:
        parts = _URL.validate_python(url)
        host = (parts.host or "").strip("[]")
        if ":" not in host:
            host.encode("idna")  # TLS would find too long a label only in the middle of a probe
    except ValueError:
        raise ValueError("healthCheck.url is not an http(s) URL of a valid host") from None
    if parts.username or parts.password:
        raise ValueError("healthCheck.url must not carry credentials")
    port = _DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme=parts.scheme, host=host, port=port, path=path)


def basic_authorization(username: str, password: str) -> str:
    """The value of Proxy-Authorization."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def connect_request(target: Target, *, proxy_authorization: str | None) -> bytes:
    """Ask a proxy for a tunnel to ``target``."""
    return _request(f"CONNECT {target.authority}", target.authority, proxy_authorization)


def tunnelled_get(target: Target) -> bytes:
    """Ask ``target`` itself, at the far end of a tunnel."""
    return _request(f"GET {target.path}", target.host_header, None)


def forwarded_get(target: Target, *, proxy_authorization: str | None) -> bytes:
    """Ask a proxy to fetch ``target``."""
    return _request(f"GET {target.scheme}://{target.host_header}{target.path}", target.host_header, proxy_authorization)


def _request(action: str, host: str, proxy_authorization: str | None) -> bytes:
    lines = [f"{action} HTTP/1.1", f"Host: {host}", "User-Agent: proxyfleet-probe"]
    if action.startswith("GET"):
        lines += ["Accept: */*", "Accept-Encoding: identity", "Connection: close"]
    if proxy_authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy_authorization}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of a response."""

    status: int
    headers: dict[str, str]
    """By lower-case name; of a repeated header, the last."""

    @property
    def is_interim(self) -> bool:
        """Another head follows. 101 is final: we never ask to switch protocols."""
        return self.status < 200 and self.status != 101

    @property
    def may_tell_address(self) -> bool:
        """Is the body text that could be an egress address?"""
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return self.status not in {101, 204, 304} and media_type in {"", "text/plain", "application/json"}


def split_head(data: bytes, *, searched: int = 0) -> tuple[Head, bytes] | None:
    """The first response head in ``data`` and the bytes behind it, or None while it is incomplete.

    The first ``searched`` bytes are known to hold no end of a head. Raises HTTPFormatError as soon as the bytes can no
    longer become an HTTP/1.x response, so that an SSH banner is named at once and not taken for a slow proxy.
    """
    if not data.startswith(_STATUS_LINE_START[: len(data)]):
        raise HTTPFormatError("the answer is not HTTP/1.x")
    end = _HEAD_END.search(data, max(0, searched - 3))
    if end is None:
        return None
    status_line = _STATUS_LINE.match(data)
    if status_line is None:
        raise HTTPFormatError("the answer has no valid status line")
    headers = {}
    for line in data[status_line.end() : end.start()].decode("latin-1").split("\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Head(status=int(status_line[1]), headers=headers), data[end.end() :]


def complete_body(head: Head, data: bytes, *, at_end: bool) -> bytes | None:
    """The body, once ``data`` holds all of it; None while more must come.

    ``at_end`` says that the peer sends no more. Raises HTTPFormatError when it is cut short or its framing is broken.
    """
    if "chunked" in head.headers.get("transfer-encoding", "").lower():
        body = _dechunk(data)
    elif (declared := head.headers.get("content-length")) is not None:
        length = _body_length(declared)
        body = data[:length] if len(data) >= length else None
    else:
        body = data if at_end else None
    if body is None and at_end:
        raise HTTPFormatError("the response ended in the middle of its body")
    return body


def _body_length(declared: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", declared):
        raise HTTPFormatError("Content-Length is not a number")
    return int(declared)


def _dechunk(data: bytes) -> bytes | None:
    body, position = b"", 0
    while True:
        line_end = data.find(b"\n", position)
        if line_end < 0:
            return None
        size_line = _CHUNK_SIZE.fullmatch(data, position, line_end + 1)
        if size_line is None:
            raise HTTPFormatError("a chunk of the body has no valid size")
        size = int(size_line[1], 16)
        if size == 0:
            return body
        start = size_line.end()
        line_break = data.find(b"\n", start + size)
        if line_break < 0:
            return None
        body += data[start : start + size]
        position = line_break + 1

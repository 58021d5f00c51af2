"""One conversation with a PVE cluster: HTTP in; answers, or the contract's errors, out. It knows of no instances."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from io import BytesIO
from types import TracebackType
from typing import Any, Self

import requests
from requests.auth import AuthBase

from providers.blocks import ProxmoxBlock
from providers.errors import (
    AuthenticationFailed,
    InvalidRequest,
    Misconfigured,
    PermissionDenied,
    QuotaExceeded,
    Unavailable,
)

CONNECT_SECONDS = 10
_TOKEN = re.compile(r"[^\s:/]+@[A-Za-z][\w.-]*![A-Za-z][\w.-]*=[\w.-]+")
_NO_ROOM = re.compile(
    r"no space left|not enough (free )?space|out of space|cannot allocate memory|quota", re.IGNORECASE
)

Parameters = Mapping[str, str | int]


class Refused(Exception):
    """PVE's own no, for the caller to make sense of; ``translated`` turns those that nobody expected."""

    def __init__(self, call: str, status: int, text: str) -> None:
        super().__init__(f"{call}: {status} {text}")
        self.status = status
        self.text = text

    def says(self, *fragments: str) -> bool:
        """PVE has one status for most refusals, so that their text alone tells them apart."""
        return any(fragment in self.text for fragment in fragments)


@contextmanager
def translated() -> Iterator[None]:
    """The refusals that no caller made sense of, in the contract's terms."""
    try:
        yield
    except Refused as refused:
        if refused.status == 400:
            raise InvalidRequest(f"Proxmox VE refused a parameter: {refused.text}", detail=str(refused)) from refused
        if _NO_ROOM.search(refused.text):
            raise QuotaExceeded(f"Proxmox VE has no room: {refused.text}", detail=str(refused)) from refused
        if refused.says("Permission check failed", "protection mode enabled"):
            raise PermissionDenied(f"Proxmox VE refuses: {refused.text}", detail=str(refused)) from refused
        raise Unavailable(f"Proxmox VE failed: {refused.text}", detail=str(refused)) from refused


class Token(AuthBase):
    """Reads the token for each request: a rotated one holds from the next request on."""

    def __init__(self, block: ProxmoxBlock) -> None:
        self._path = block.token_file

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            token = self._path.read_text(encoding="ascii").strip()
        except OSError as error:
            raise AuthenticationFailed(
                "the provider's token can't be read", detail=f"tokenFile {self._path}: {error.strerror}"
            ) from error
        except UnicodeDecodeError:
            token = ""
        if not _TOKEN.fullmatch(token):
            raise AuthenticationFailed(
                "the provider's token can't be used", detail=f"tokenFile {self._path} must hold USER@REALM!ID=SECRET"
            )
        request.headers["Authorization"] = f"PVEAPIToken={token}"
        return request


class Api:
    """Calls of one verb: a connection of its own, shared with no thread or process, under one deadline."""

    def __init__(self, block: ProxmoxBlock, *, seconds: float) -> None:
        """``seconds`` bounds everything that is done with this object; then it gives up with Unavailable."""
        self._block = block
        self._deadline = time.monotonic() + seconds
        self._clock = ""
        self._session = requests.Session()
        # Proxies, .netrc and CA bundles of the environment are meant for others.
        self._session.trust_env = False
        self._session.auth = Token(block)
        self._session.verify = not block.insecure_skip_tls_verify and str(block.ca_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def get(self, path: str, /, **parameters: str | int) -> Any:
        return self._call("GET", path, params=parameters)

    def post(self, path: str, parameters: Parameters | None = None) -> Any:
        return self._call("POST", path, data=parameters)

    def put(self, path: str, parameters: Parameters) -> Any:
        return self._call("PUT", path, data=parameters)

    def delete(self, path: str, /, **parameters: str | int) -> Any:
        """Parameters go into the query: PVE accepts no body here."""
        return self._call("DELETE", path, params=parameters)

    def upload_iso(self, node: str, storage: str, filename: str, content: bytes) -> Any:
        """PVE reads the form as a stream: these fields in this order, with the file last and its length known."""
        fields = [
            ("content", (None, "iso")),
            ("checksum-algorithm", (None, "sha256")),
            ("checksum", (None, hashlib.sha256(content).hexdigest())),
            ("filename", (filename, BytesIO(content))),
        ]
        return self._call("POST", f"/nodes/{node}/storage/{storage}/upload", files=fields)

    def now(self) -> datetime:
        """The backend's own clock, as its last answer told it."""
        try:
            return parsedate_to_datetime(self._clock).astimezone(UTC)
        except ValueError:
            raise Unavailable("Proxmox VE told no time", detail=f"the header Date is {self._clock!r}") from None

    def wait(self, seconds: float, what: str) -> None:
        """Sleep, unless that would pass the deadline: raises Unavailable, saying ``what`` was waited for."""
        if time.monotonic() + seconds >= self._deadline:
            raise Unavailable(f"gave up waiting for {what}")
        time.sleep(seconds)

    def pauses(self, what: str, *, limit: float | None = None) -> Iterator[None]:
        """Between looks at something that changes: short pauses at first, longer ones later.

        Ends after ``limit`` seconds, if there is one; raises Unavailable at the deadline.
        """
        end = None if limit is None else time.monotonic() + limit
        pause = 0.02
        while end is None or time.monotonic() < end:
            yield
            self.wait(pause, what)
            pause = min(pause * 1.5, 2)

    def _call(self, method: str, path: str, **content: Any) -> Any:
        call = f"{method} {path}"
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise Unavailable("gave up: Proxmox VE takes too long", detail=f"no time was left for {call}")
        timeout = min(self._block.request_timeout_seconds, left)
        with _translated_transport(self._block, call):
            answer = self._session.request(
                method,
                f"{self._block.url}/api2/json{path}",
                timeout=(min(CONNECT_SECONDS, timeout), timeout),
                allow_redirects=False,
                **content,
            )
        self._clock = answer.headers.get("Date", "")
        return _data_of(answer, call)


@contextmanager
def _translated_transport(block: ProxmoxBlock, call: str) -> Iterator[None]:
    try:
        yield
    except requests.exceptions.SSLError as error:
        raise Misconfigured(
            "the identity of Proxmox VE can't be verified", detail=f"{block.url}: caFile {block.ca_file}: {error}"
        ) from error
    except requests.Timeout as error:
        raise Unavailable("Proxmox VE does not answer in time", detail=f"{block.url}: {call}: {error}") from error
    except requests.RequestException as error:
        raise Unavailable("Proxmox VE can't be reached", detail=f"{block.url}: {call}: {error}") from error
    except OSError as error:
        # requests looks at the file before it connects.
        raise Misconfigured("caFile can't be read", detail=f"caFile {block.ca_file}: {error}") from error


def _data_of(answer: requests.Response, call: str) -> Any:
    body: Any = None
    with suppress(requests.exceptions.JSONDecodeError):
        body = answer.json()
    text = _text_of(answer, body)
    match answer.status_code:
        case 200 if isinstance(body, dict) and "data" in body:
            return body["data"]
        case 401:
            raise AuthenticationFailed("Proxmox VE does not accept the provider's token", detail=f"{call}: {text}")
        case 403:
            raise PermissionDenied(f"Proxmox VE refuses the provider's token: {text}", detail=f"{call}: {text}")
        case 429 | 502 | 503 | 504:
            raise Unavailable(f"Proxmox VE is busy: {text}", detail=f"{call}: {answer.status_code} {text}")
        case status if 595 <= status <= 599:
            raise Unavailable("the node does not answer", detail=f"{call}: {status} {text}")
        case status if status >= 400:
            raise Refused(call, status, text)
    raise Unavailable("Proxmox VE gave no answer of its API", detail=f"{call}: {answer.status_code} is not JSON data")


def _text_of(answer: requests.Response, body: Any) -> str:
    """In the reason phrase on every version, in the body on new ones, and by parameter when one is wrong."""
    text = (answer.reason or "").strip()
    if isinstance(body, dict):
        text = str(body.get("message") or text).strip()
        if isinstance(errors := body.get("errors"), dict):
            text = "; ".join([text, *(f"{name}: {str(error).strip()}" for name, error in errors.items())])
    return text

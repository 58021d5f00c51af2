"""An API server that answers as it is told: for streams that a real one sends once in a blue moon."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes.client import Configuration

from k8s_sync.client import ApiServer, Object

CUT = "cut"
"""Break the connection, in the middle of what the client takes for a chunk to come."""
HOLD = "hold"
"""Say nothing until the test ends."""

Step = bytes | str
"""Bytes to send, CUT or HOLD. A stream whose steps are done ends as the protocol wants it."""


def obj(name: str, version: int, **extra: Any) -> Object:
    return {"metadata": {"uid": name, "name": name, "namespace": "ns", "resourceVersion": str(version)}, **extra}


def event(kind: str, name: str, version: int) -> bytes:
    return json.dumps({"type": kind, "object": obj(name, version)}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}).encode() + b"\n"


def error(code: int) -> bytes:
    return (
        json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "scripted"}}).encode()
        + b"\n"
    )


class Script:
    """What to answer. The last listing is given again and again; when no watch is left, the next one holds."""

    def __init__(
        self,
        *,
        lists: Sequence[tuple[int, Sequence[Object]] | int],
        watches: Sequence[Sequence[Step] | int],
        newest: int = 1_000,
    ):
        """A list is a resourceVersion and objects, or an HTTP status; a watch is its steps, or an HTTP status.

        ``newest`` is the resourceVersion that whoever looks, before it resumes a watch, is told.
        """
        self.newest = newest
        self._lists = deque(lists)
        self._watches = deque(watches)
        self.asked: list[str] = []
        """``list``, or ``watch`` and where from."""
        self.over = threading.Event()

    def next_list(self) -> tuple[int, Sequence[Object]] | int:
        self.asked.append("list")
        return self._lists.popleft() if len(self._lists) > 1 else self._lists[0]

    def next_watch(self, resource_version: str) -> Sequence[Step] | int:
        self.asked.append(f"watch {resource_version}")
        return self._watches.popleft() if self._watches else [HOLD]


@contextmanager
def serving(script: Script) -> Iterator[ApiServer]:
    """A client of a server that follows ``script``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            if query.get("limit") == "1":
                self._send_json(200, {"metadata": {"resourceVersion": str(script.newest)}, "items": []})
                return
            if "watch" not in query:
                answer = script.next_list()
                if isinstance(answer, int):
                    self._refuse(answer)
                    return
                version, objects = answer
                self._send_json(200, {"metadata": {"resourceVersion": str(version)}, "items": list(objects)})
                return
            assert query["allowWatchBookmarks"] == "true"
            steps = script.next_watch(query["resourceVersion"])
            if isinstance(steps, int):
                self._refuse(steps)
                return
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for step in steps:
                if step == CUT:
                    self.close_connection = True
                    return
                if step == HOLD:
                    script.over.wait()
                    self.close_connection = True
                    return
                assert isinstance(step, bytes)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(step), step))
            self.wfile.write(b"0\r\n\r\n")

        def _refuse(self, code: int) -> None:
            self._send_json(code, {"kind": "Status", "code": code, "message": "scripted"})

        def _send_json(self, code: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the signature is the base class's
            """Tests look at ``asked``."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield ApiServer(lambda: Configuration(host=f"http://127.0.0.1:{server.server_port}"))
    finally:
        script.over.set()
        server.shutdown()
        thread.join()
        server.server_close()

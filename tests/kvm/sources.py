"""An HTTP server that has the guest images, and can do everything a bad source does."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from tests.kvm import image


class ImageServer:
    """Serves ``/tiny`` and ``/full``, and faults under ``/<fault>/tiny``; counts what is asked for."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.let_go = threading.Event()
        """Lets ``slow`` send its second half."""
        self.half_sent = threading.Event()
        """A fault has sent the first half of an image."""
        images = {kind: image.path_of(kind) for kind in image.KINDS}
        handler = type("Handler", (_Handler,), {"images": images, "server_state": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{path}"

    def sha256(self, kind: str) -> str:
        return hashlib.sha256(image.path_of(kind).read_bytes()).hexdigest()

    def close(self) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    images: ClassVar[dict[str, Path]]
    server_state: ClassVar[ImageServer]

    def do_GET(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client may leave before it has all
            self._answer()

    def _answer(self) -> None:
        self.server_state.requests.append(self.path)
        fault, _, kind = self.path.strip("/").rpartition("/")
        if fault == "missing":
            self.send_error(404)
            return
        if fault == "failing":
            self.send_error(503)
            return
        content = self.images[kind].read_bytes()
        if fault == "page":
            content = b"<html>Please log in</html>" * 1000
        self.send_response(200)
        announced = len(content) + 4096 if fault == "longer" else len(content)
        if fault == "shorter":
            announced -= 4096
        self.send_header("Content-Length", str(announced))
        self.end_headers()
        half = len(content) // 2
        self.wfile.write(content[:half])
        self.server_state.half_sent.set()
        match fault:
            case "stalling":
                self.rfile.read(1)  # until the client leaves
                return
            case "breaking":
                return
            case "slow":
                self.server_state.let_go.wait(120)
        self.wfile.write(content[half:announced])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Silent."""

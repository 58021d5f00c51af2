"""What of a download is taken for an image."""

from __future__ import annotations

import hashlib
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from providers.errors import Misconfigured, ProviderError, Unavailable
from providers.libvirt.sources import Download, Image, download

Answer = Callable[[BaseHTTPRequestHandler], None]


def qcow2(*, version: int = 3, backing_file: int = 0, features: int = 0, size: int = 5 << 30) -> bytes:
    start = struct.pack(">4sIQIIQ", b"QFI\xfb", version, backing_file, 0, 16, size)
    return start.ljust(72, b"\0") + struct.pack(">Q", features) + b"\0" * 4096


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    handler = type("Handler", (BaseHTTPRequestHandler,), {"do_GET": answer, "log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/image"
        server.shutdown()
        thread.join(5)


def with_content(content: bytes, *, announced: int | None = None) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content) if announced is None else announced))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def with_status(status: int) -> Answer:
    return lambda handler: handler.send_error(status)


def fetch(answer: Answer, *, sha256: str | None = None, seconds: float = 30) -> Download:
    with serving(answer) as url:
        image = Image(key="debian-13", url=url, sha256=sha256, format="qcow2", firmware="uefi")
        with download(image, deadline=time.monotonic() + seconds) as source:
            for _ in source.chunks():
                pass
        return source


def test_a_complete_image_says_what_it_is() -> None:
    content = qcow2()
    source = fetch(with_content(content), sha256=hashlib.sha256(content).hexdigest())
    assert (source.received, source.announced, source.virtual_size) == (len(content), len(content), 5 << 30)


@pytest.mark.parametrize(
    ("answer", "expected", "says"),
    [
        (with_content(qcow2(), announced=10**6), Unavailable, "broke off"),
        (with_content(b"<html>Please log in</html>"), Misconfigured, "no qcow2"),
        (with_content(b""), Misconfigured, "no qcow2"),
        (with_content(qcow2(backing_file=104)), Misconfigured, "part of another"),
        (with_content(qcow2(features=4)), Misconfigured, "part of another"),
        (with_status(404), Misconfigured, "answers 404"),
        (with_status(503), Unavailable, "fails"),
        (with_status(429), Unavailable, "fails"),
    ],
)
def test_what_is_no_complete_image_is_refused(answer: Answer, expected: type[ProviderError], says: str) -> None:
    with pytest.raises(expected, match=says) as refused:
        fetch(answer)
    assert type(refused.value) is expected
    assert "http://127.0.0.1" in refused.value.detail
    assert "http://" not in str(refused.value)


def test_another_digest_is_refused() -> None:
    with pytest.raises(Misconfigured, match="another image") as refused:
        fetch(with_content(qcow2()), sha256="0" * 64)
    assert hashlib.sha256(qcow2()).hexdigest() in refused.value.detail


def test_the_older_version_has_no_features_to_look_at() -> None:
    assert fetch(with_content(qcow2(version=2, features=4))).virtual_size == 5 << 30


def test_a_deadline_ends_a_download_that_goes_on() -> None:
    with pytest.raises(Unavailable, match="in time"):
        fetch(with_content(qcow2()), seconds=-1)


def test_a_source_that_is_not_there_is_unavailable() -> None:
    with serving(with_status(500)) as url:
        pass
    image = Image(key="debian-13", url=url, sha256=None, format="qcow2", firmware="uefi")
    with pytest.raises(Unavailable, match="can't be reached"), download(image, deadline=time.monotonic() + 5):
        pass

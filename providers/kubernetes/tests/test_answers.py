"""Answers that a real API server gives too rarely to wait for, from a small HTTP server."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from providers.blocks import KubernetesBlock
from providers.errors import Unavailable
from providers.kubernetes.driver import KubernetesProvider
from providers.tests.contract import FLEET, make_request

Answer = tuple[int, dict[str, str], bytes]
Answering = Callable[..., KubernetesProvider]


def status(code: int, reason: str) -> bytes:
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": f"this is {reason}"}).encode()


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answering]:
    """Makes a driver whose API server gives one answer to everything, or none."""
    asked = threading.Event()
    over = threading.Event()
    answer: list[Answer] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.set()
            if not answer:
                over.wait(30)
                return
            code, headers, body = answer[0]
            self.send_response(code)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the base class names them so

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            """Keep the tests' output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                    "users": [{"name": "u", "user": {"token": "s3cret"}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )

        def provider(*answers: Answer) -> KubernetesProvider:
            answer[:] = answers
            block = KubernetesBlock.model_validate({"kubeconfigFile": str(kubeconfig)})
            return KubernetesProvider(entry="in-cluster", block=block, fleet_id=FLEET, state_dir=tmp_path)

        yield provider
        over.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "retry_after"),
    [
        ((429, {"Retry-After": "7"}, status(429, "TooManyRequests")), 7),
        ((503, {}, status(503, "ServiceUnavailable")), None),
        ((500, {}, b"oh no"), None),
        ((404, {}, b"<html>no such page</html>"), None),
        ((404, {}, status(404, "NotFound")), None),
        ((200, {}, b"<html>please log in</html>"), None),
        ((302, {"Location": "http://127.0.0.1:9/"}, b""), None),
        ((409, {}, status(409, "Conflict")), None),
        ((418, {}, status(418, "Unknown")), None),
    ],
)
def test_trouble_on_the_way_says_nothing_of_the_instance(
    answering: Answering, answer: Answer, retry_after: float | None
) -> None:
    provider = answering(answer)
    provider_id = f"in-cluster://default/{make_request().name}/12345678-1234-4234-8234-123456789012"
    for call in (lambda: provider.get(provider_id), lambda: provider.delete(provider_id), provider.list):
        with pytest.raises(Unavailable) as failure:
            call()
        assert failure.value.retry_after == retry_after
        assert "s3cret" not in str(failure.value) + failure.value.detail


def test_silence_ends_at_the_deadline(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = answering()
    monkeypatch.setattr(provider, "_deadline", lambda *_: time.monotonic() + 0.3)
    with pytest.raises(Unavailable, match="can't be reached"):
        provider.create(make_request())


def test_a_closed_port_is_unreachable(answering: Answering, tmp_path: Path) -> None:
    provider = answering()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(re.sub(r"127.0.0.1:\d+", "127.0.0.1:1", kubeconfig.read_text()))
    assert [(target.ready, target.reason) for target in provider.check()] == [(False, "Unreachable")]
    with pytest.raises(Unavailable, match="can't be reached"):
        provider.list()

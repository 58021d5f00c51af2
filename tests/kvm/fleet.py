"""The fleet's own code on real guests: rows, reconciler and probes, driven by a test in the place of workers."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType

import trustme
from django.utils import timezone

from health import prompt
from health.engine import probe_due
from providers.blocks import LibvirtBlock
from providers.config import ProviderEntry, ProvidersConfig
from providers.registry import Providers
from proxyfleet.conf import settings
from proxyfleet.fleet import claims
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.reconciler import reconcile
from tests.kvm.host import GATEWAY

BOOT_SECONDS = 600.0
HOLD = timedelta(minutes=5)


def providers_of(**entries: tuple[str, LibvirtBlock]) -> Providers:
    """The registry with one entry for each ``name=(type, block)``."""
    configured = {name: ProviderEntry(name, kind, block) for name, (kind, block) in entries.items()}
    return Providers(
        ProvidersConfig(MappingProxyType(configured)), fleet_id=settings().fleet_id, state_dir=Path("/nonexistent")
    )


class Fleet:
    """Works on what is due, as workers do, and probes what has an address."""

    def __init__(self, providers: Providers) -> None:
        self.providers = providers

    def step(self, proxy: Proxy) -> Proxy:
        """One run of the reconciler for this proxy, whether due or not."""
        now = timezone.now()
        held = claims.claim(proxy.pk, now, hold_for=HOLD)
        assert held is not None
        reconcile(held, self.providers, now)
        return Proxy.objects.get(pk=proxy.pk)

    def until(self, proxy: Proxy, condition: Callable[[Proxy], bool], *, seconds: float = BOOT_SECONDS) -> Proxy:
        """Go on until the proxy's row is as wanted; a row that is gone fails."""
        deadline = time.monotonic() + seconds
        while not condition(proxy := self.step(proxy)):
            assert time.monotonic() < deadline, (proxy.phase, proxy.reason, proxy.message, proxy.health_message)
            if proxy.address:
                prompt.ask([proxy.pk])
                probe_due(proxy.lane, timezone.now())
            time.sleep(2)
        return proxy

    def until_gone(self, proxy: Proxy, *, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while Proxy.objects.filter(pk=proxy.pk).exists():
            assert time.monotonic() < deadline
            now = timezone.now()
            held = claims.claim(proxy.pk, now, hold_for=HOLD)
            assert held is not None
            reconcile(held, self.providers, now)

    @staticmethod
    def history(proxy: Proxy) -> list[str]:
        """The proxy's events, oldest first: kind, or the phase that it went to."""
        return [
            event.new_phase if event.kind == "PhaseChanged" else event.kind for event in proxy.events.order_by("id")
        ]


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
        """Silent."""


@contextmanager
def target(authority: trustme.CA) -> Iterator[str]:
    """An https page that guests can reach at the host's address; yields its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(GATEWAY).configure_cert(context)
    server = ThreadingHTTPServer((GATEWAY, 0), _Page)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"https://{GATEWAY}:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()

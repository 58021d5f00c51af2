"""Real proxies of the process provider and a real TLS target, which breaks; then the proxies die instead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from health import engine
from health.tests.conftest import Certificates, certificates
from health.tests.fleet import peer
from health.tests.peers import Script, answer
from providers.config import load_providers_config
from providers.process.tests.machine import kill, pid_of
from providers.registry import Providers
from proxyfleet.conf import settings
from proxyfleet.fleet import claims, operations
from proxyfleet.fleet.models import ProbeTarget, Proxy, ProxyEvent
from proxyfleet.fleet.reconciler import reconcile
from proxyfleet.fleet.relist import relist
from proxyfleet.local.addresses import free_port

__all__ = ["certificates"]
pytestmark = pytest.mark.django_db(transaction=True)

ENTRY = "here"
COUNT = 4
NO_CONTENT = answer(b"HTTP/1.1 204 No Content\r\n\r\n")
HOLD = timedelta(minutes=1)


class Fleet:
    """What workers do: reconcile what is due, probe what is due, list what is there."""

    def __init__(self, providers: Providers, folder: Path) -> None:
        self.providers = providers
        self.folder = folder

    def work(self) -> None:
        relist(ENTRY, self.providers.get(ENTRY), timezone.now())
        while held := claims.claim_next(ENTRY, frozenset([ENTRY]), timezone.now(), limit=COUNT, hold_for=HOLD):
            reconcile(held, self.providers, timezone.now())
        engine.probe_due(ENTRY, timezone.now())

    def until(self, condition: Callable[[], bool], *, seconds: float = 90) -> None:
        give_up_at = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < give_up_at, list(Proxy.objects.values_list("name", "phase", "health_message"))
            self.work()
            time.sleep(0.2)

    def work_for(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self.work()
            time.sleep(0.2)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    (tmp_path / "providers.yaml").write_text(f"providers: [{{name: {ENTRY}, type: process, process: {{}}}}]")
    config = load_providers_config(tmp_path / "providers.yaml")
    fleet = Fleet(Providers(config, fleet_id=settings().fleet_id, state_dir=tmp_path), tmp_path)
    yield fleet
    provider = fleet.providers.get(ENTRY)
    for instance in provider.list():
        provider.delete(instance.provider_id)


def instances() -> Mapping[str, str]:
    return dict(Proxy.objects.values_list("name", "provider_id"))


def all_are(phase: str) -> Callable[[], bool]:
    return lambda: Proxy.objects.filter(phase=phase).count() == COUNT


def is_open() -> bool:
    return ProbeTarget.objects.exclude(suspect_since=None).exists()


@pytest.mark.timeout(600)
def test_a_broken_target_costs_no_proxy_and_dead_proxies_do(
    fleet: Fleet, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_shared_tls", lambda: certificates.prober)
    port = free_port()
    for number in range(COUNT):
        spec = {
            "provider": ENTRY,
            "healthCheck": {
                "url": f"https://localhost:{port}/generate_204",
                "intervalSeconds": 1,
                "timeoutSeconds": 1,
                "failureThreshold": 1,
            },
        }
        operations.declare("default", f"p{number}", spec, actor="test", now=timezone.now())
    unavailable: Script = answer(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
    with peer(NO_CONTENT, tls=certificates.trusted, port=port):
        fleet.until(all_are("Ready"))
    made = instances()

    # The target stops; then it has another's certificate; then it is overloaded.
    fleet.until(is_open)
    fleet.until(all_are("Ready"))
    assert ProbeTarget.objects.get().stage == "tunnel"
    fleet.work_for(4)
    assert (all_are("Ready")(), instances()) == (True, made)
    with peer(NO_CONTENT, tls=certificates.trusted, port=port):
        fleet.until(lambda: not is_open())
    for script, tls, stage in [
        (NO_CONTENT, certificates.for_another_host, "tls"),
        (unavailable, certificates.trusted, "response"),
    ]:
        with peer(script, tls=tls, port=port):
            fleet.until(is_open)
            fleet.until(all_are("Ready"))
            assert ProbeTarget.objects.get().stage == stage
            fleet.work_for(4)
            assert (all_are("Ready")(), instances(), is_open()) == (True, made, True)
        with peer(NO_CONTENT, tls=certificates.trusted, port=port):
            fleet.until(lambda: not is_open())
            assert all_are("Ready")()
    assert not ProxyEvent.objects.filter(kind__in=["InstanceDeleted", "InstanceLost"]).exists()
    assert ProxyEvent.objects.filter(kind="ProbeTargetSuspect").count() >= 3
    assert ProxyEvent.objects.filter(kind="ProbeTargetCleared").count() >= 3

    # Now the proxies themselves: the verdict falls, and others are made in their place.
    with peer(NO_CONTENT, tls=certificates.trusted, port=port):
        for instance in fleet.providers.get(ENTRY).list():
            kill(pid_of(fleet.folder, instance))
        fleet.until(lambda: not set(instances().values()) & set(made.values()) and all_are("Ready")())
        assert not ProbeTarget.objects.exists()
    assert ProxyEvent.objects.filter(kind="InstanceLost").count() == COUNT

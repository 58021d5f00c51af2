"""A fleet on a backend that fails on command and a clock that tests move; all else of the fleet is the real thing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from providers.base import BehaviourProfile
from providers.blocks import ProcessBlock
from providers.config import EXTERNAL, ProviderEntry, ProvidersConfig
from providers.instances import Instance, InstanceState
from providers.registry import Providers
from providers.tests.backend import Backend, Clock
from providers.tests.memory import MemoryBackend
from proxyfleet.conf import settings
from proxyfleet.fleet import claims, operations
from proxyfleet.fleet.limits import step_limit
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.orphans import Orphan, collect_orphans
from proxyfleet.fleet.phases import Verdict
from proxyfleet.fleet.ports import ports
from proxyfleet.fleet.reconciler import reconcile
from proxyfleet.fleet.relist import relist

START = datetime(2026, 1, 1, tzinfo=UTC)
GC_MIN_AGE = timedelta(minutes=10)
HOLD = step_limit(MemoryBackend.profile)
"""How long a run of the reconciler holds its proxy, with the backend in memory."""

MakeBackend = Callable[[Clock], Backend]


class OneBackend(Providers):
    """Entries that all live on one backend."""

    def __init__(self, names: Iterable[str], backend: Backend, fleet_id: str) -> None:
        self.backend, self.fleet_id = backend, fleet_id
        super().__init__(ProvidersConfig(), fleet_id=fleet_id, state_dir=Path())
        self.configure(names)

    def configure(self, names: Iterable[str]) -> None:
        """As after a restart with another providers file."""
        entries = {name: ProviderEntry(name=name, type="memory", block=ProcessBlock()) for name in names}
        self._config = ProvidersConfig(MappingProxyType(entries))
        self._built = {name: self.backend.provider(name, fleet_id=self.fleet_id) for name in entries}

    def profile(self, name: str) -> BehaviourProfile:
        return self.backend.profile


class RecordingProber:
    """Stands for the health engine, whose probes need a network: remembers who asked for one."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def probe_soon(self, proxy_ids: Iterable[int]) -> None:
        self.asked.extend(proxy_ids)


class World:
    """Everything around one fleet. ``now`` moves only when a test moves it."""

    def __init__(self, *names: str, make_backend: MakeBackend = MemoryBackend) -> None:
        self.now = START
        self.backend = make_backend(lambda: self.now)
        self.hold = step_limit(self.backend.profile)
        self.providers = OneBackend(names or ("mem",), self.backend, settings().fleet_id)
        self.prober = RecordingProber()
        self.judged: set[str] = set()
        """The instances that a verdict was given on."""
        self._numbers = itertools.count(1)

    def declare(self, name: str | None = None, **spec: Any) -> Proxy:
        spec = self.complete({"provider": "mem"} | spec)
        if spec.get("mode") == "External":
            del spec["provider"]
        return operations.declare("default", name or f"p{next(self._numbers)}", spec, actor="test", now=self.now)

    def complete(self, spec: dict[str, Any]) -> dict[str, Any]:
        """A spec that the backend can fulfil."""
        return {"placement": dict(self.backend.placement)} | spec if self.backend.placement else spec

    def step(self, proxy: Proxy) -> Proxy:
        """One run of the reconciler for this proxy, whether due or not; returns the row as it is then."""
        held = claims.claim(proxy.pk, self.now, hold_for=self.hold)
        assert held is not None, f"{proxy} is held by another run"
        reconcile(held, self.providers, self.now)
        return self.read(proxy)

    def run(self, *, limit: int = 100) -> int:
        """Reconcile all that is due, as the workers' lanes do; returns the number of steps."""
        configured = frozenset(self.providers.names())
        hold_for, steps = self.hold, 0
        for lane in (*self.providers.names(), EXTERNAL):
            while steps < limit and (held := claims.claim_next(lane, configured, self.now, limit=4, hold_for=hold_for)):
                reconcile(held, self.providers, self.now)
                steps += 1
        return steps

    def settle(self, proxy: Proxy, *, rounds: int = 40, seconds: float = 5) -> Proxy:
        """Let time pass and workers work until nothing is due soon."""
        for _ in range(rounds):
            self.run()
            self.now += timedelta(seconds=seconds)
        return self.read(proxy)

    def ready(self, proxy: Proxy) -> Proxy:
        """Bring a proxy to Ready: provisioned, probed healthy, reconciled."""
        proxy = self.settle(proxy, rounds=6)
        self.judge(proxy, Verdict.HEALTHY)
        proxy = self.step(proxy)
        assert proxy.phase == "Ready", (proxy.phase, proxy.reason, proxy.message)
        return proxy

    def judge(self, proxy: Proxy, verdict: Verdict, outcome: str = "") -> None:
        """Write a verdict as the health engine does: its own columns, and a hint."""
        current = self.read(proxy)
        self.judged.add(current.provider_id)
        Proxy.objects.filter(pk=proxy.pk).update(
            verdict=verdict,
            probed_serial=current.instance_serial,
            last_outcome=outcome,
            health_changed_at=self.now,
            next_reconcile_at=self.now,
        )

    def relist(self) -> None:
        for name in self.providers.names():
            relist(name, self.providers.get(name), self.now)

    def collect_orphans(self, *, dry_run: bool = False, max_deletes: int = 20) -> list[Orphan]:
        return [
            orphan
            for name in self.providers.names()
            for orphan in collect_orphans(
                name,
                self.providers.get(name),
                self.now,
                min_age=GC_MIN_AGE,
                max_deletes=max_deletes,
                dry_run=dry_run,
            )
        ]

    def live(self, proxy_uid: object = None) -> list[Instance]:
        """Instances that exist and are not being deleted: what costs money and could serve."""
        return [
            instance
            for instance in self.backend.machines()
            if instance.state is not InstanceState.DELETING and proxy_uid in (None, instance.identity.proxy_uid)
        ]

    @staticmethod
    def read(proxy: Proxy) -> Proxy:
        return Proxy.objects.get(pk=proxy.pk)

    @staticmethod
    def history(proxy: Proxy) -> list[str]:
        """The proxy's events, oldest first: kind, or the phase that it went to."""
        return [
            event.new_phase if event.kind == "PhaseChanged" else event.kind for event in proxy.events.order_by("id")
        ]


@contextmanager
def new_world(*names: str, make_backend: MakeBackend = MemoryBackend) -> Iterator[World]:
    """A world whose prober takes the place of the health engine while it lasts."""
    world = World(*names, make_backend=make_backend)
    before = ports.prober
    ports.prober = world.prober
    try:
        yield world
    finally:
        ports.prober = before
        world.backend.close()

"""What a step of the reconciler, a call of a driver and a sweep are counted as."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest
from prometheus_client import Counter

from providers.blocks import ProcessBlock
from providers.config import ProviderEntry, ProvidersConfig
from providers.errors import InstanceNotFound, QuotaExceeded
from providers.registry import Driver
from providers.tests.backend import Call, refuse
from proxyfleet.fleet import claims
from proxyfleet.fleet.observed import ObservedProviders
from proxyfleet.fleet.reconciler import reconcile
from proxyfleet.fleet.tests.world import GC_MIN_AGE, HOLD, World
from proxyfleet.observability import metrics


@contextmanager
def counted(value: Counter, number: float = 1) -> Iterator[None]:
    """This process counts so much meanwhile."""
    before = value._value.get()
    yield
    assert value._value.get() - before == number


def test_a_step_is_counted_by_what_it_did(world: World) -> None:
    proxy = world.declare()
    with counted(metrics.reconciles.labels("mem", "CreateInstance", "ok")):
        world.step(proxy)


def test_a_refusal_is_counted_by_its_reason(world: World) -> None:
    world.backend.faults[Call.CREATE].append(refuse(QuotaExceeded("no room")))
    with counted(metrics.reconciles.labels("mem", "CreateInstance", "QuotaExceeded")):
        world.step(world.declare())


def test_a_result_that_came_too_late_is_counted_as_such(world: World) -> None:
    proxy = world.declare()
    held = claims.claim(proxy.pk, world.now, hold_for=HOLD)
    assert held is not None
    assert claims.claim(proxy.pk, world.now + 2 * HOLD, hold_for=HOLD) is not None
    with counted(metrics.reconciles.labels("mem", "Unknown", "ClaimLost")):
        reconcile(held, world.providers, world.now)


def test_only_orphans_that_are_deleted_are_counted(world: World) -> None:
    proxy = world.ready(world.declare())
    proxy.delete()
    world.now += 2 * GC_MIN_AGE
    with counted(metrics.gc_deleted.labels("mem"), 0):
        world.collect_orphans(dry_run=True)
    with counted(metrics.gc_deleted.labels("mem")):
        world.collect_orphans()


def test_calls_of_a_driver_are_timed_by_their_result(tmp_path: Path) -> None:
    entry = ProviderEntry(name="odd", type="odd", block=ProcessBlock())
    known = ObservedProviders(
        ProvidersConfig(MappingProxyType({"odd": entry})),
        fleet_id="f",
        state_dir=tmp_path,
        drivers={"odd": Driver(__name__, "OddProvider", needs="nothing")},
    )
    provider = known.get("odd")

    def sums() -> list[float]:
        calls = [("get", "InstanceNotFound"), ("delete", "error"), ("check", "ok")]
        return [sum(bucket.get() for bucket in metrics.provider_calls.labels("odd", *call)._buckets) for call in calls]

    before = sums()
    with pytest.raises(InstanceNotFound):
        provider.get("odd://1")
    with pytest.raises(ZeroDivisionError):
        provider.delete("odd://1")
    assert list(provider.check()) == []
    assert [after - number for after, number in zip(sums(), before, strict=True)] == [1, 1, 1]


class OddProvider:
    profile = None

    def __init__(self, **_: object) -> None: ...

    def get(self, provider_id: str) -> None:
        raise InstanceNotFound("gone")

    def delete(self, provider_id: str) -> None:
        raise ZeroDivisionError

    def check(self) -> list[object]:
        return []

"""What is kept of a check: changes, and nothing else; whatever the driver does, the worker goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from health.provider_checks import check_provider, forget_removed
from providers.base import Provider
from providers.blocks import ProcessBlock
from providers.checks import CheckReason
from providers.config import ProviderEntry, ProvidersConfig
from providers.errors import AuthenticationFailed
from providers.instances import TargetCheck
from providers.registry import Driver, Providers, UnknownProvider
from proxyfleet.fleet.models import ProviderState, Proxy

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
STAMP, LATER_STAMP = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"

Check = Callable[[], Iterable[TargetCheck]]
CONFIG = ProvidersConfig({"mem": ProviderEntry("mem", "process", ProcessBlock())})


class OneEntry(Providers):
    """An entry ``mem``, whose driver's check is ``check``."""

    def __init__(self, check: Check) -> None:
        super().__init__(CONFIG, fleet_id="f1", state_dir=Path())
        self.check = check

    def get(self, name: str) -> Provider:
        return cast("Provider", self)


def finding(**reasons: CheckReason) -> Check:
    """Targets by name, each with its reason."""
    return lambda: [
        TargetCheck(
            name, ready=reason is CheckReason.HEALTHY, reason=reason, message="" if reason == "Healthy" else "why"
        )
        for name, reason in reasons.items()
    ]


def check(entries: Providers, now: datetime = NOW, *, timeout: float = 10) -> ProviderState:
    check_provider("mem", entries, now, timeout=timeout)
    return ProviderState.objects.get(entry="mem")


def targets(state: ProviderState) -> list[tuple[str, str, str]]:
    return [(target["name"], target["reason"], target["lastTransitionTime"]) for target in state.check_targets]


def test_all_targets_ready_is_ready() -> None:
    state = check(OneEntry(finding(a=CheckReason.HEALTHY, b=CheckReason.HEALTHY)))
    assert (state.check_ready, state.check_reason, state.check_message) == (True, "Healthy", "")
    assert targets(state) == [("a", "Healthy", STAMP), ("b", "Healthy", STAMP)]
    assert state.check_changed_at == NOW


def test_one_that_is_not_ready_is_named() -> None:
    state = check(OneEntry(finding(a=CheckReason.HEALTHY, b=CheckReason.POOL_NOT_FOUND)))
    assert (state.check_ready, state.check_reason) == (False, "PoolNotFound")
    assert state.check_message == "1 of 2 targets are not ready; b: why"


def test_a_time_moves_only_with_its_own_target() -> None:
    entries = OneEntry(finding(a=CheckReason.HEALTHY, b=CheckReason.UNREACHABLE))
    check(entries)
    entries.check = finding(a=CheckReason.TIMEOUT, b=CheckReason.HOST_KEY_MISMATCH, c=CheckReason.HEALTHY)
    state = check(entries, LATER)
    assert targets(state) == [
        ("a", "Timeout", LATER_STAMP),
        ("b", "HostKeyMismatch", STAMP),
        ("c", "Healthy", LATER_STAMP),
    ]
    assert state.check_changed_at == NOW


def test_nothing_is_written_at_rest() -> None:
    entries = OneEntry(finding(a=CheckReason.HEALTHY, b=CheckReason.UNREACHABLE))
    check(entries)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        check(entries, LATER)
    assert [query["sql"] for query in queries if not query["sql"].startswith("SELECT")] == []


def test_what_others_keep_in_the_row_stays() -> None:
    ProviderState.objects.create(entry="mem", orphans_error="kept", probed_until=NOW)
    state = check(OneEntry(finding(a=CheckReason.HEALTHY)))
    assert (state.check_ready, state.orphans_error, state.probed_until) == (True, "kept", NOW)


def test_a_failing_check_changes_no_proxy() -> None:
    proxy = Proxy.objects.create(name="p", provider="mem", next_reconcile_at=None)
    check(OneEntry(finding(a=CheckReason.UNREACHABLE)))
    assert Proxy.objects.filter(pk=proxy.pk, revision=0, next_reconcile_at=None, phase="Pending").exists()


def test_a_driver_that_can_not_be_imported_is_misconfigured() -> None:
    drivers = {"process": Driver("no_such_library_for_tests", "Provider", needs="libsomething (apt install it)")}
    state = check(Providers(CONFIG, fleet_id="f1", state_dir=Path(), drivers=drivers))
    assert (state.check_ready, state.check_reason) == (False, "Misconfigured")
    assert "libsomething (apt install it)" in state.check_message


def test_a_providers_error_has_its_reason() -> None:
    def refuse() -> Iterator[TargetCheck]:
        yield TargetCheck("a", ready=True, reason=CheckReason.HEALTHY)
        raise AuthenticationFailed("the key is not accepted")

    state = check(OneEntry(refuse))
    assert targets(state) == [("a", "Healthy", STAMP), ("mem", "AuthenticationFailed", STAMP)]


def test_a_bug_of_a_driver_is_logged_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    def crash() -> Iterator[TargetCheck]:
        raise ZeroDivisionError("s3cret")

    state = check(OneEntry(crash))
    assert (state.check_ready, state.check_reason) == (False, "APIError")
    assert "s3cret" not in state.check_message
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "ZeroDivisionError" in caplog.text


def test_a_host_that_hangs_is_timed_out_alone_and_not_asked_twice() -> None:
    thaw = threading.Event()
    asked: list[str] = []

    def hang() -> Iterator[TargetCheck]:
        asked.append("a")
        yield TargetCheck("a", ready=True, reason=CheckReason.HEALTHY)
        thaw.wait(60)
        yield TargetCheck("b", ready=True, reason=CheckReason.HEALTHY)

    entries = OneEntry(finding(a=CheckReason.HEALTHY, b=CheckReason.HEALTHY))
    check(entries)
    entries.check = hang
    state = check(entries, LATER, timeout=0.2)
    assert targets(state) == [("a", "Healthy", STAMP), ("b", "Timeout", LATER_STAMP)]
    assert state.check_message == "1 of 2 targets are not ready; b: no answer within 0.2 s"

    assert targets(check(entries, LATER, timeout=0.2)) == targets(state)
    assert asked == ["a"]

    thaw.set()
    [hanging] = [thread for thread in threading.enumerate() if thread.name == "check of mem"]
    hanging.join(10)
    assert check(entries, LATER).check_ready
    assert asked == ["a", "a"]


def test_an_entry_that_never_answered_is_its_own_target() -> None:
    thaw = threading.Event()

    def hang() -> Iterator[TargetCheck]:
        thaw.wait(60)
        yield from ()

    state = check(OneEntry(hang), timeout=0.2)
    thaw.set()
    assert targets(state) == [("mem", "Timeout", STAMP)]


def test_entries_that_are_gone_are_forgotten() -> None:
    check(OneEntry(finding(a=CheckReason.HEALTHY)))
    assert forget_removed(["mem"]) == 0
    assert forget_removed(["another"]) == 1
    state = ProviderState.objects.get(entry="mem")
    assert (state.check_ready, state.check_reason, state.check_targets) == (None, "", [])
    assert forget_removed(["another"]) == 0


def test_an_entry_that_is_not_configured_is_not_checked() -> None:
    with pytest.raises(UnknownProvider):
        check_provider("another", OneEntry(finding()), NOW, timeout=1)

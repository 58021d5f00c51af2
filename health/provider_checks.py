"""Is the backend of a provider entry usable? What a check finds is kept on its ProviderState, and touches no proxy.

A driver's check runs in a thread that is given up at the timeout: a host that hangs in a C library can't be
interrupted, and must not keep a worker. One that hangs on is not asked a second time by the same process.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextvars import copy_context
from datetime import datetime
from threading import Thread
from typing import Any

from providers.checks import CheckReason, reason_of
from providers.errors import ProviderError
from providers.instances import TargetCheck
from providers.registry import Providers
from proxyfleet.fleet.models import ProviderState
from proxyfleet.observability import metrics, tracing

logger = logging.getLogger(__name__)

_hanging: dict[str, tuple[Thread, list[TargetCheck]]] = {}
"""Checks that were given up, by entry, with what they have found until now."""


def check_provider(entry: str, known: Providers, now: datetime, *, timeout: float) -> bool:
    """Check ``entry`` within ``timeout`` seconds and keep what changed; returns whether all of it is ready.

    Raises UnknownProvider.
    """
    known.entry(entry)
    state = ProviderState.objects.filter(entry=entry).first() or ProviderState(entry=entry)
    observe = metrics.provider_check_duration.labels(entry).observe
    with tracing.span("check provider", provider=entry), metrics.timed(observe):
        found, in_time = _ask(entry, known, timeout)
    metrics.provider_check_timestamp.labels(entry).set(now.timestamp())
    if not in_time:
        silent = {target["name"] for target in state.check_targets} - {target.name for target in found}
        message = f"no answer within {timeout:g} s"
        found += [
            TargetCheck(name, ready=False, reason=CheckReason.TIMEOUT, message=message)
            for name in sorted(silent) or ([] if found else [entry])
        ]
    return _keep(state, found, now)


def forget_removed(configured: Collection[str]) -> int:
    """Drop the verdicts on entries that are no longer in the providers file; returns on how many."""
    return (
        ProviderState.objects.exclude(entry__in=configured)
        .exclude(check_ready=None)
        .update(check_ready=None, check_reason="", check_message="", check_targets=[], check_changed_at=None)
    )


def _ask(entry: str, known: Providers, timeout: float) -> tuple[list[TargetCheck], bool]:
    """What the driver said of its targets until now, and whether that is all."""
    thread, found = _hanging.pop(entry, (None, []))
    if thread is None or not thread.is_alive():
        found = []
        thread = Thread(
            target=copy_context().run, args=(_collect, entry, known, found), name=f"check of {entry}", daemon=True
        )
        thread.start()
        thread.join(timeout)
    in_time = not thread.is_alive()
    if not in_time:
        _hanging[entry] = thread, found
    return list(found), in_time


def _collect(entry: str, known: Providers, found: list[TargetCheck]) -> None:
    try:
        for target in known.get(entry).check():
            found.append(target)  # noqa: PERF402 - seen by the other thread one by one
    except ProviderError as error:
        logger.warning("%s can't be checked: %s", entry, error.detail)
        found.append(TargetCheck(entry, ready=False, reason=reason_of(error), message=str(error)))
    except Exception:
        logger.exception("The check of %s failed in a way that its driver does not know", entry)
        message = "the check itself failed; the worker's log says how"
        found.append(TargetCheck(entry, ready=False, reason=CheckReason.API_ERROR, message=message))


def _keep(state: ProviderState, found: list[TargetCheck], now: datetime) -> bool:
    ready = all(target.ready for target in found)
    reason, message = summarize(found)
    new: dict[str, Any] = {
        "check_ready": ready,
        "check_reason": reason,
        "check_message": message,
        "check_targets": merge_targets(state.check_targets, found, now),
        "check_changed_at": state.check_changed_at if ready is state.check_ready else now,
    }
    if any(getattr(state, column) != value for column, value in new.items()):
        ProviderState.objects.update_or_create(entry=state.entry, defaults=new)
    return ready


def summarize(found: Iterable[TargetCheck]) -> tuple[CheckReason, str]:
    """The reason and message of a whole entry: those of the first target that is not ready."""
    targets = list(found)
    failing = [target for target in targets if not target.ready]
    if not failing:
        return CheckReason.HEALTHY, ""
    first = failing[0]
    if len(targets) == 1:
        return first.reason, first.message
    message = f"{len(failing)} of {len(targets)} targets are not ready; {first.name}: {first.message or first.reason}"
    return first.reason, message


def merge_targets(
    before: Iterable[Mapping[str, Any]], found: Iterable[TargetCheck], now: datetime
) -> list[dict[str, Any]]:
    """The targets to keep. ``lastTransitionTime`` moves only when a target gets ready or ceases to be."""
    known = {target["name"]: target for target in before}
    merged = []
    for target in found:
        old = known.get(target.name)
        steady = old is not None and old["ready"] is target.ready
        merged.append(
            {
                "name": target.name,
                "ready": target.ready,
                "reason": target.reason.value,
                "message": target.message,
                "lastTransitionTime": old["lastTransitionTime"]
                if old and steady
                else now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )
    return merged

"""Celery tasks of health: safe to run twice or late."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from health import engine, memory, provider_checks, targets
from proxyfleet.conf import settings
from proxyfleet.fleet.backends import providers
from proxyfleet.fleet.spec import MAX_PROBE_SECONDS

SOFT_LIMIT = int(engine.TAKE_FOR.total_seconds()) + MAX_PROBE_SECONDS + 30
"""In seconds. A net for what can't be: probes end by their own deadlines."""
HARD_LIMIT = SOFT_LIMIT + 30


@shared_task(name="health.probe_due", soft_time_limit=SOFT_LIMIT, time_limit=HARD_LIMIT)
def probe_due(*, entry: str) -> int:
    """Probe what is due of one provider entry, or asked for; returns how many probes were made."""
    return engine.probe_due(entry, timezone.now())


@shared_task(name="health.check_provider")
def check_provider(*, entry: str) -> bool:
    """Check the backend of one provider entry; returns whether it is ready."""
    ready = provider_checks.check_provider(entry, providers(), timezone.now(), timeout=settings().check_timeout)
    memory.keep_check(entry, timezone.now())
    return ready


@shared_task(name="health.forget_removed_providers")
def forget_removed_providers() -> int:
    """Drop what was found of entries that are no longer configured; returns how many there were."""
    return provider_checks.forget_removed(providers().names())


@shared_task(name="health.forget_unused_targets")
def forget_unused_targets() -> int:
    """Drop what is suspected of targets that no proxy is probed with any more; returns of how many."""
    return targets.forget_unused(timezone.now())

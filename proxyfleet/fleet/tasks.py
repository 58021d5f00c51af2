"""Celery tasks of the fleet: ids in, one domain call each, safe to run twice or late."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from providers.errors import ProviderError
from proxyfleet.conf import settings
from proxyfleet.fleet import claims, hints
from proxyfleet.fleet.backends import providers
from proxyfleet.fleet.completeness import MirrorIncomplete
from proxyfleet.fleet.limits import TURN, step_limit
from proxyfleet.fleet.models import ProxyEvent
from proxyfleet.fleet.orphans import sweep
from proxyfleet.fleet.reconciler import reconcile as reconcile_claimed
from proxyfleet.fleet.relist import relist as relist_entry
from proxyfleet.fleet.retention import delete_before, turn

logger = logging.getLogger(__name__)


@shared_task(name="fleet.reconcile")
def reconcile(*, entry: str) -> int:
    """Reconcile the proxies of one provider entry until none is due; returns how many steps it took."""
    known = providers()
    configured = frozenset(known.names())
    limit = settings().provider_concurrency
    hold_for = step_limit(known.profile(entry))
    turn_ends = _turn_ends()
    steps = 0
    while held := claims.claim_next(entry, configured, timezone.now(), limit=limit, hold_for=hold_for):
        reconcile_claimed(held, known, timezone.now())
        steps += 1
        if time.monotonic() > turn_ends:
            hints.kick([entry])
            break
    return steps


@shared_task(name="fleet.relist")
def relist(*, entry: str) -> int:
    """Look for instances of one provider entry that changed by themselves; returns how many proxies were woken."""
    try:
        return len(relist_entry(entry, providers().get(entry), timezone.now()))
    except ProviderError as error:
        logger.warning("The instances of %s can't be listed: %s", entry, error.detail)
        return 0


@shared_task(name="fleet.collect_orphans")
def collect_orphans(*, entry: str) -> int:
    """Delete the orphans of one provider entry; returns how many were found."""
    try:
        turn_ends = _turn_ends()
        found = sweep(entry, timezone.now(), has_time=lambda: time.monotonic() < turn_ends)
    except ProviderError as error:
        logger.warning("Orphans of %s can't be looked for: %s", entry, error.detail)
        return 0
    except MirrorIncomplete as error:
        logger.warning("Orphans of %s are not looked for: %s", entry, error)
        return 0
    return len(found)


@shared_task(name="fleet.prune_events")
def prune_events() -> int:
    """Delete events older than the retention; returns how many."""
    oldest = timezone.now() - timedelta(days=settings().event_retention_days)
    return delete_before(oldest, ProxyEvent, "at", has_time=turn())


def _turn_ends() -> float:
    """By the monotonic clock."""
    return time.monotonic() + TURN.total_seconds()

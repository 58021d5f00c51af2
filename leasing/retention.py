"""How long leasing remembers what is over."""

from __future__ import annotations

from datetime import datetime, timedelta

from leasing.models import Cooldown, EndedLease, IdempotencyKey, Report
from proxyfleet.conf import settings
from proxyfleet.fleet.retention import delete_before, turn

IDEMPOTENCY_RETENTION = timedelta(hours=24)
"""How long a request can be repeated under its Idempotency-Key."""


def prune(now: datetime) -> None:
    """Delete ended leases and reports past their retention, cooldowns that are over, and old idempotency keys.

    What there is no time for is left for the next call.
    """
    has_time = turn()
    oldest = now - timedelta(days=settings().event_retention_days)
    delete_before(now, Cooldown, "until", has_time=has_time)
    delete_before(now - IDEMPOTENCY_RETENTION, IdempotencyKey, "created_at", has_time=has_time)
    delete_before(oldest, Report, "at", has_time=has_time)
    delete_before(oldest, EndedLease, "ended_at", has_time=has_time)

"""How long leasing remembers what is over."""

from __future__ import annotations

from datetime import datetime, timedelta

from leasing.models import Cooldown, EndedLease, IdempotencyKey, Report
from proxyfleet.conf import settings

IDEMPOTENCY_RETENTION = timedelta(hours=24)
"""How long a request can be repeated under its Idempotency-Key."""


def prune(now: datetime) -> None:
    """Delete ended leases and reports past their retention, cooldowns that are over, and old idempotency keys."""
    oldest = now - timedelta(days=settings().event_retention_days)
    EndedLease.objects.filter(ended_at__lt=oldest).delete()
    Report.objects.filter(at__lt=oldest).delete()
    Cooldown.objects.filter(until__lte=now).delete()
    IdempotencyKey.objects.filter(created_at__lt=now - IDEMPOTENCY_RETENTION).delete()

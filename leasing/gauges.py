"""Leasing in numbers, read from the database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prometheus_client import Metric

from leasing.models import Cooldown, Lease
from proxyfleet.observability import metrics


def read(now: datetime) -> Iterator[Metric]:
    """Raises django.db.Error."""
    leases = metrics.leases_active.family()
    leases.add_metric([], Lease.objects.filter(expires_at__gt=now).count())
    yield leases
    cooldowns = metrics.cooldowns_active.family()
    cooldowns.add_metric([], Cooldown.objects.filter(until__gt=now).count())
    yield cooldowns

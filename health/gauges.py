"""Is probing on time? Read from the database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Min
from prometheus_client import Metric

from health.schedule import moment_at
from health.turns import next_slot, of, probeable
from providers.config import EXTERNAL
from proxyfleet.fleet.backends import providers
from proxyfleet.fleet.models import ProviderState
from proxyfleet.observability import metrics


def read(now: datetime) -> Iterator[Metric]:
    """Raises django.db.Error."""
    family = metrics.healthcheck_age.family()
    probed_until = dict(ProviderState.objects.values_list("entry", "probed_until"))
    for entry in (*providers().names(), EXTERNAL):
        due_at = _first_due(entry, probed_until.get(entry))
        if due_at is not None:
            family.add_metric([entry], max(0.0, (now - due_at).total_seconds()))
    yield family


def _first_due(entry: str, probed_until: datetime | None) -> datetime | None:
    """When the first probe that is still owed was, or will be due; None: there is nothing to probe."""
    proxies = probeable().filter(of(entry))
    if probed_until is None:
        created_at: datetime | None = proxies.aggregate(first=Min("created_at"))["first"]
        return created_at
    slot = proxies.aggregate(first=Min(next_slot(probed_until)))["first"]
    return None if slot is None else moment_at(slot)

"""What the charts of the dashboard are drawn from."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models


class FleetMinute(models.Model):
    """One minute of the whole fleet: what was counted in it, and what was so at its end. Written by `rollup` alone."""

    minute = models.DateTimeField(primary_key=True)

    # Seen at the end of the minute; none: nobody looked then.
    proxies = models.PositiveIntegerField(null=True)
    ready = models.PositiveIntegerField(null=True)

    # Counted from the records of the minute, whenever that is done.
    leases = models.PositiveIntegerField(default=0)
    reports_ok = models.PositiveIntegerField(default=0)
    reports_failed = models.PositiveIntegerField(default=0)
    phase_changes = models.PositiveIntegerField(default=0)
    # As in `health.latency`; empty: no good probe.
    probe_counts: models.Field[Any, Any] = ArrayField(models.PositiveIntegerField(), default=list)

    class Meta:
        ordering: ClassVar = ["minute"]

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M}"

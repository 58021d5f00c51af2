"""What health keeps of probes that change nothing: how long they took."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models


class ProbeMinute(models.Model):
    """How many good probes of a provider entry took how long in one minute. Kept for a day: see `health.latency`."""

    entry = models.CharField(max_length=63)
    minute = models.DateTimeField()
    # One count for each bucket of `latency.BOUNDS`, and one for what took longer.
    counts = ArrayField(models.PositiveIntegerField())

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["minute", "entry"], name="probe_minute_unique")]

    def __str__(self) -> str:
        return f"{self.entry} {self.minute:%Y-%m-%d %H:%M}"

"""What the dashboard does by the clock."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from proxyfleet.dashboard.rollup import roll_up as roll_up_minutes


@shared_task(name="dashboard.roll_up")
def roll_up() -> int:
    """Write the rows of the minutes that are over; returns how many."""
    return roll_up_minutes(timezone.now())

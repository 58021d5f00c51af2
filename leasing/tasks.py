"""What leasing does by the clock."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from leasing import operations, retention


@shared_task(name="leasing.expire_leases")
def expire_leases() -> None:
    operations.expire(timezone.now())


@shared_task(name="leasing.prune")
def prune() -> None:
    retention.prune(timezone.now())

"""Wakes the reconciler at once. Only a hint: what it hints at is in the row, and the sweep finds it there anyway."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import datetime

from celery import current_app
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Coalesce, Least
from kombu.exceptions import OperationalError

from proxyfleet.fleet.backends import lane_of, providers
from proxyfleet.fleet.limits import TimeLimits, task_limits
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.queues import queue_of

logger = logging.getLogger(__name__)

SILENCE_SECONDS = 15
"""How long a broker that did not take a hint is left alone: one that hangs costs each try its timeout."""


class _Broker:
    silent_until = 0.0
    """By ``time.monotonic()``."""


def wake(proxy_ids: Iterable[int], now: datetime) -> None:
    """These proxies are due now. Joins the caller's transaction; the workers hear of it after the commit."""
    ids = list(proxy_ids)
    due = Proxy.objects.filter(pk__in=ids)
    due.update(next_reconcile_at=Least(Coalesce(F("next_reconcile_at"), now), now))
    configured = frozenset(providers().names())
    lanes = {lane_of(lane, configured) for lane in due.values_list("lane", flat=True).distinct()}
    transaction.on_commit(lambda: kick(lanes))


def kick(lanes: Iterable[str]) -> None:
    """Tell the workers of these provider entries that something is due."""
    for lane in lanes:
        limits = task_limits(providers().profile(lane))
        send("fleet.reconcile", queue=queue_of(lane), limits=limits, entry=lane)


def send(task: str, *, queue: str, limits: TimeLimits | None = None, **kwargs: object) -> None:
    """Publish a task that the schedule would do later anyway; a broker that is down costs the hint, nothing else."""
    if time.monotonic() < _Broker.silent_until:
        return
    try:
        current_app.send_task(task, kwargs=kwargs, queue=queue, **(limits or TimeLimits()))
    except OperationalError as error:
        _Broker.silent_until = time.monotonic() + SILENCE_SECONDS
        logger.warning(
            "The broker did not take the hint %s for %s, and gets none for %d s; the schedule will do it: %s",
            *(task, queue, SILENCE_SECONDS, error),
        )

"""The Celery app: its queues, one for each provider entry, and the whole beat schedule as one table."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from celery import Celery
from celery.schedules import schedule
from celery.signals import (
    beat_init,
    before_task_publish,
    setup_logging,
    worker_init,
    worker_process_init,
    worker_process_shutdown,
)
from kombu import Queue

from providers.base import BehaviourProfile
from providers.config import EXTERNAL, load_providers_config
from providers.profiles import profile_of
from proxyfleet.alive import Alive
from proxyfleet.conf import Settings, settings
from proxyfleet.fleet.limits import TimeLimits, check_limits, task_limits
from proxyfleet.fleet.queues import CHECK_QUEUE, DEFAULT_QUEUE, SENT_AT, queue_of
from proxyfleet.observability import listener, tracing

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proxyfleet.settings")


PR_SET_PDEATHSIG = 1  # linux/prctl.h
CHECK_TASK = "health.check_provider"
MESSAGE_EXPIRES = 10
"""Seconds after which a message of the schedule is stale; longer than a busy queue, or nothing would ever run."""
PRUNE_SECONDS = 300
"""A turn deletes a million rows or so, and a busy fleet ends more than a million leases in an hour."""
ROLLUP_SECONDS = 30
"""Twice in each minute that is rolled up: with once, one that the schedule is late for would be missed."""


class Every(schedule):
    """Due when its interval has passed since the last run, which the clock may have been set back behind since."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        estimate: timedelta = super().remaining_estimate(last_run_at)
        return min(estimate, timedelta(seconds=self.seconds))


def beat_schedule(profiles: Mapping[str, BehaviourProfile], conf: Settings) -> dict[str, dict[str, Any]]:
    """All that happens by the clock. ``profiles`` tells how the driver of each provider entry behaves.

    A message that no worker took before the next one is due expires: work does not pile up while workers are away.
    """
    table: dict[str, dict[str, Any]] = {
        "expire leases": _every(1, "leasing.expire_leases", queue=DEFAULT_QUEUE),
        "prune history": _every(PRUNE_SECONDS, "leasing.prune", queue=DEFAULT_QUEUE),
        "prune events": _every(PRUNE_SECONDS, "fleet.prune_events", queue=DEFAULT_QUEUE),
        "roll up": _every(ROLLUP_SECONDS, "dashboard.roll_up", queue=DEFAULT_QUEUE),
        "forget removed providers": _every(
            conf.provider_check_interval, "health.forget_removed_providers", queue=DEFAULT_QUEUE
        ),
        "forget unused probe targets": _every(
            conf.provider_check_interval, "health.forget_unused_targets", queue=DEFAULT_QUEUE
        ),
    }
    for entry, profile in {**profiles, EXTERNAL: profile_of(EXTERNAL)}.items():
        queue, limits = queue_of(entry), task_limits(profile)
        table |= {
            f"reconcile {entry}": _every(
                conf.reconcile_interval, "fleet.reconcile", queue=queue, limits=limits, entry=entry
            ),
            f"probe {entry}": _every(conf.probe_interval, "health.probe_due", queue=queue, entry=entry),
        }
    for entry, profile in profiles.items():
        queue, limits = queue_of(entry), task_limits(profile)
        table |= {
            f"relist {entry}": _every(profile.relist_seconds, "fleet.relist", queue=queue, limits=limits, entry=entry),
            f"collect orphans of {entry}": _every(
                conf.gc_interval, "fleet.collect_orphans", queue=queue, limits=limits, entry=entry
            ),
            f"check {entry}": _every(
                conf.provider_check_interval,
                CHECK_TASK,
                queue=CHECK_QUEUE,
                limits=check_limits(conf.check_timeout),
                entry=entry,
            ),
        }
    return table


def _every(seconds: float, task: str, *, queue: str, limits: TimeLimits | None = None, **kwargs: Any) -> dict[str, Any]:
    return {
        "task": task,
        "schedule": Every(seconds),
        "kwargs": kwargs,
        "options": {"queue": queue, "expires": max(seconds, MESSAGE_EXPIRES), **(limits or {})},
    }


def queues(entries: Iterable[str]) -> list[Queue]:
    return [Queue(DEFAULT_QUEUE), Queue(CHECK_QUEUE), *(Queue(queue_of(entry)) for entry in entries)]


def _make_app(conf: Settings) -> Celery:
    profiles = {
        entry.name: profile_of(entry.type) for entry in load_providers_config(conf.providers_config).entries.values()
    }
    app = Celery("proxyfleet")
    app.conf.update(
        broker_url=conf.broker_url.get_secret_value(),
        broker_connection_retry_on_startup=True,
        # A hint is worth a short wait, no more: what it hints at is in the database.
        broker_transport_options={"socket_timeout": 3, "socket_connect_timeout": 3},
        # One more try, for a connection that went stale; the first finds out only when it is used.
        task_publish_retry_policy={"max_retries": 1, "interval_start": 0},
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        task_queues=queues([*profiles, EXTERNAL]),
        task_default_queue=DEFAULT_QUEUE,
        task_soft_time_limit=60,
        task_time_limit=90,
        task_serializer="json",
        accept_content=["json"],
        worker_prefetch_multiplier=1,
        worker_concurrency=conf.worker_concurrency,
        worker_enable_remote_control=True,
        worker_send_task_events=True,
        task_send_sent_event=True,
        timezone="UTC",
        beat_schedule=beat_schedule(profiles, conf),
        beat_scheduler="proxyfleet.beat:Scheduler",
        beat_max_loop_interval=1,
    )
    app.steps["consumer"].add(Alive)
    app.autodiscover_tasks(["proxyfleet.fleet", "health", "leasing", "proxyfleet.dashboard"])
    return app


@setup_logging.connect
def _keep_django_logging(**_: object) -> None:
    """Django has configured logging already; Celery would replace it."""


@worker_init.connect
@beat_init.connect
def _open_metrics(**_: object) -> None:
    """A worker's own process counts nothing, but answers for its children, of which one may have been killed."""
    listener.start_counting()
    listener.start_answering()


@beat_init.connect
def _trace_messages(**_: object) -> None:
    tracing.start("beat")


@worker_process_init.connect
def _trace_tasks(**_: object) -> None:
    """In each child: the thread that sends spans would not outlive a fork."""
    tracing.start("worker")


@worker_process_shutdown.connect
def _send_last_spans(**_: object) -> None:
    tracing.stop()


@before_task_publish.connect
def _say_when(headers: dict[str, Any], **_: object) -> None:
    """So that whoever looks at a queue sees how long its first message has waited: brokers don't tell."""
    headers[SENT_AT] = time.time()


@beat_init.connect
def _check_providers_at_once(**_: object) -> None:
    """An operator who starts the product wants to know now, not when the first interval is over."""
    for item in app.conf.beat_schedule.values():
        if item["task"] == CHECK_TASK:
            app.send_task(item["task"], kwargs=item["kwargs"], **item["options"])


@worker_process_init.connect
def _die_with_the_worker(**_: object) -> None:
    """A pool process must not go on alone after its parent was killed: its claims would look alive."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


app = _make_app(settings())

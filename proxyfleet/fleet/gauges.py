"""The fleet in numbers, read from the database and the broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from amqp.exceptions import ChannelError
from celery import current_app
from django.db.models import Count, F, Min
from kombu import Connection
from kombu.exceptions import OperationalError
from prometheus_client import Metric

from providers.config import EXTERNAL
from proxyfleet.conf import settings
from proxyfleet.fleet.models import ClusterMirror, Origin, ProviderState, Proxy, ProxyEvent
from proxyfleet.fleet.phases import Phase
from proxyfleet.observability import metrics


def read(now: datetime) -> Iterator[Metric]:
    """Raises django.db.Error. Of a broker that can't be reached there is no number."""
    yield _proxies()
    yield _targets()
    if settings().cluster_sync:
        yield _sync_lag(now)
    yield _queues()


def _proxies() -> Metric:
    family = metrics.proxies.family()
    counted = {
        (mode, provider, phase): number
        for mode, provider, phase, number in Proxy.objects.order_by()
        .values_list("mode", "provider", "phase")
        .annotate(Count("id"))
    }
    # All phases of each: a series that comes and goes leaves graphs with what it last said.
    for mode, provider in sorted({(mode, provider) for mode, provider, _ in counted}):
        for phase in Phase:
            number = counted.get((mode, provider, phase.value), 0)
            family.add_metric([phase.value, provider or EXTERNAL, mode], number)
    return family


def _targets() -> Metric:
    family = metrics.provider_target_up.family()
    checked = ProviderState.objects.exclude(check_ready=None).values_list("entry", "check_targets", "check_ready")
    for entry, targets, ready in checked:
        share = sum(target["ready"] for target in targets) / len(targets) if targets else float(bool(ready))
        family.add_metric([entry], share)
    return family


def _sync_lag(now: datetime) -> Metric:
    family = metrics.sync_lag.family()
    mirror = ClusterMirror.objects.first()
    if mirror is not None and mirror.complete_at is not None:
        family.add_metric(["in"], _seconds(now - mirror.complete_at))
    untold = ProxyEvent.objects.filter(
        proxy__origin=Origin.CLUSTER,
        proxy__revision__gt=F("proxy__published_revision"),
        pk__gt=F("proxy__published_event"),
    )
    oldest = untold.aggregate(at=Min("at"))["at"]
    family.add_metric(["out"], 0 if oldest is None else _seconds(now - oldest))
    return family


def _seconds(age: timedelta) -> float:
    return max(0.0, age.total_seconds())


def _queues() -> Metric:
    family = metrics.queue_depth.family()
    try:
        with current_app.connection_for_read() as connection:
            connection.ensure_connection(max_retries=1, timeout=2)
            for queue in current_app.conf.task_queues:
                family.add_metric([queue.name], _depth(connection, queue.name))
    except (OperationalError, OSError):
        family.samples.clear()
    return family


def _depth(connection: Connection, queue: str) -> int:
    try:
        with connection.channel() as channel:
            depth: int = channel.queue_declare(queue, passive=True).message_count  # type: ignore[attr-defined]  # has it
    except ChannelError:
        return 0  # nothing was ever sent there
    return depth

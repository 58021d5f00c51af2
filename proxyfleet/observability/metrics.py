"""Every metric of the product. docs/metrics.md describes them; a test compares the two.

What happens is counted by the process that does it. What is, is read from the database and the broker when somebody
asks (``Reading``). No label takes a proxy's name or a target's: they are as many as the fleet is large.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

# Before the first metric is made: it says where they count.
from proxyfleet.observability import slots as slots

READ: list[Reading] = []


@dataclass(frozen=True, slots=True)
class Reading:
    """A gauge that is read from what all processes share: the same whoever is asked."""

    name: str
    help: str
    labels: Sequence[str] = ()

    def __post_init__(self) -> None:
        READ.append(self)

    def family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self.name, self.help, labels=self.labels)


# A probe may take a hundredth of a second or its whole timeout; a provider's call a moment or an image's fetch.
PROBE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
CALL_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

healthchecks = Counter(
    "proxyfleet_healthcheck_total",
    "Probes of proxies, by what came of each.",
    ["provider", "outcome"],
    registry=None,
)
healthcheck_duration = Histogram(
    "proxyfleet_healthcheck_duration_seconds",
    "Time that a probe took, from the proxy's name to the last byte.",
    buckets=PROBE_SECONDS,
    registry=None,
)
lease_requests = Counter(
    "proxyfleet_lease_requests_total", "Requests for leases, by what became of each.", ["outcome"], registry=None
)
reports = Counter("proxyfleet_reports_total", "Reports on leases, by their result.", ["result"], registry=None)
reconciles = Counter(
    "proxyfleet_reconcile_total",
    "Steps of the reconciler, each of one proxy, by what was done and what came of it.",
    ["provider", "action", "result"],
    registry=None,
)
reconcile_duration = Histogram(
    "proxyfleet_reconcile_duration_seconds",
    "Time that a step of the reconciler took, the provider's calls included.",
    buckets=CALL_SECONDS,
    registry=None,
)
provider_calls = Histogram(
    "proxyfleet_provider_call_duration_seconds",
    "Time that a call of a provider's driver took.",
    ["provider", "call", "result"],
    buckets=CALL_SECONDS,
    registry=None,
)
provider_check_duration = Histogram(
    "proxyfleet_provider_check_duration_seconds",
    "Time that a check of a provider entry took; a silent one is given up at its timeout.",
    ["provider"],
    buckets=PROBE_SECONDS,
    registry=None,
)
provider_check_timestamp = Gauge(
    "proxyfleet_provider_check_timestamp_seconds",
    "When a provider entry was last checked, in seconds since the epoch.",
    ["provider"],
    multiprocess_mode="max",
    registry=None,
)
gc_deleted = Counter(
    "proxyfleet_gc_deleted_total", "Orphaned instances that were deleted.", ["provider"], registry=None
)
sync_events = Counter(
    "proxyfleet_sync_events_total", "Changes that the bridge heard of from the cluster.", ["kind"], registry=None
)

COUNTED = (
    healthchecks,
    healthcheck_duration,
    lease_requests,
    reports,
    reconciles,
    reconcile_duration,
    provider_calls,
    provider_check_duration,
    provider_check_timestamp,
    gc_deleted,
    sync_events,
)

proxies = Reading("proxyfleet_proxies", "Declared proxies.", ("phase", "provider", "mode"))
healthcheck_age = Reading(
    "proxyfleet_healthcheck_age_seconds",
    "How long the proxy that waits longest for its probe has been waiting since it was due.",
    ("provider",),
)
leases_active = Reading("proxyfleet_leases_active", "Leases that are out.")
cooldowns_active = Reading("proxyfleet_cooldowns_active", "Proxies that rest for a target, once for each target.")
provider_target_up = Reading(
    "proxyfleet_provider_target_up",
    "Share of a provider entry's targets (hosts, nodes, zones) that the last check found usable, from 0 to 1.",
    ("provider",),
)
sync_lag = Reading(
    "proxyfleet_sync_lag_seconds",
    "For how long the database has been behind the cluster (in), and the cluster behind the database (out).",
    ("direction",),
)
queue_depth = Reading("proxyfleet_queue_depth", "Messages that wait in a queue of the broker.", ("queue",))


@contextmanager
def timed(observe: Callable[[float], object]) -> Iterator[None]:
    """Pass on the seconds that the block took, however it ended."""
    began = time.perf_counter()
    try:
        yield
    finally:
        observe(time.perf_counter() - began)

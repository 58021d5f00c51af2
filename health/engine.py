"""Probe the fleet: what is due of one provider entry, or given proxies at once. No network inside a transaction."""

from __future__ import annotations

import asyncio
import resource
import ssl
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from django.db import transaction

from health import latency
from health.batches import claim_due, probeable, release
from health.folding import Measured, fold
from health.probes import probe_all, tls_context
from health.results import Outcome, ProbeRequest, ProbeResult, ProxyCredentials, Stage
from proxyfleet.conf import settings
from proxyfleet.fleet import hints
from proxyfleet.fleet.backends import lane_of, providers
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.queues import queue_of
from proxyfleet.fleet.secrets import Credentials, SecretMissing, credentials_of

START_WITHIN = timedelta(seconds=20)
"""A batch starts no probe later than this; what is left stays due. So a batch ends, however slow its proxies are."""

_SPARE_DESCRIPTORS = 64
"""Left of what this process may still open: for its own connections, and for name servers, which the resolvers ask."""

_FOLD_SECONDS = 0.5
"""How long results gather before they are written: a slow proxy delays nobody's verdict but its own."""


def probe_due(entry: str, now: datetime) -> int:
    """Probe the proxies of ``entry`` that came due since its last batch; returns how many were probed.

    0 also while an earlier batch of the entry still runs.
    """
    batch = claim_due(entry, now, start_within=START_WITHIN)
    if batch is None:
        return 0
    unserved = {proxy.pk for proxy in batch.proxies}
    durations: list[float] = []
    try:
        for results, moment in _probe(batch.proxies, now):
            fold(results, moment)
            unserved.difference_update(result.key.proxy_id for result in results)
            durations += [sum(result.seconds.values()) for result in results if result.is_ok]
    finally:
        release(batch, unserved=unserved)
    latency.record(entry, durations, now)
    return len(batch.proxies) - len(unserved)


def probe_now(proxy_ids: Iterable[int], now: datetime) -> int:
    """Probe these without waiting for their slot; returns how many were probed."""
    probed = 0
    for results, moment in _probe(list(probeable().filter(pk__in=list(proxy_ids))), now):
        fold(results, moment)
        probed += len(results)
    return probed


class CeleryProber:
    """``proxyfleet.fleet.ports.Prober`` by way of the worker of each proxy's provider entry."""

    def probe_soon(self, proxy_ids: Iterable[int]) -> None:
        ids = list(proxy_ids)
        transaction.on_commit(lambda: self._send(ids))

    def _send(self, ids: list[int]) -> None:
        configured = frozenset(providers().names())
        by_lane: dict[str, list[int]] = {}
        for pk, lane in Proxy.objects.filter(pk__in=ids).values_list("pk", "lane"):
            by_lane.setdefault(lane_of(lane, configured), []).append(pk)
        for lane, members in by_lane.items():
            hints.send("health.probe", queue=queue_of(lane), proxy_ids=members)


def _probe(proxies: Sequence[Proxy], now: datetime) -> Iterator[tuple[list[ProbeResult[Measured]], datetime]]:
    """Results as they gather, each time with the moment that it is by then.

    The event loop has a thread of its own: Django's connection stays with ours, and writing delays no probe.
    """
    if not proxies:
        return
    began = time.monotonic()
    credentials = credentials_of(proxies)
    missing = {pk: found for pk, found in credentials.items() if isinstance(found, SecretMissing)}
    requests = [_request(proxy, credentials) for proxy in proxies if proxy.pk not in missing]
    arrived = deque(_without_credentials(proxy, missing[proxy.pk]) for proxy in proxies if proxy.pk in missing)
    probes = probe_all(
        requests,
        tls=_shared_tls(),
        deliver=arrived.append,
        concurrency=_concurrency(),
        start_within_seconds=START_WITHIN.total_seconds(),
    )
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="probes") as thread:
        running = thread.submit(asyncio.run, probes)
        ended = False
        while not ended:
            ended = bool(wait([running], timeout=_FOLD_SECONDS).done)
            if results := [arrived.popleft() for _ in range(len(arrived))]:
                yield results, now + timedelta(seconds=time.monotonic() - began)
        running.result()


def _concurrency() -> int:
    """As set, but no more than this process may open: a batch that runs out of descriptors would probe nobody."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return settings().health_workers
    return max(1, min(settings().health_workers, allowed - open_descriptors() - _SPARE_DESCRIPTORS))


def open_descriptors() -> int:
    """How many files and sockets this process has open."""
    return len(list(Path("/dev/fd").iterdir()))


def _without_credentials(proxy: Proxy, why: SecretMissing) -> ProbeResult[Measured]:
    return ProbeResult(_key(proxy), Outcome.CREDENTIALS_MISSING, Stage.CONNECT, {}, f"credentialsSecretRef: {why}")


def _key(proxy: Proxy) -> Measured:
    return Measured(proxy.pk, proxy.instance_serial)


def _request(proxy: Proxy, credentials: Mapping[int, Credentials | SecretMissing]) -> ProbeRequest[Measured]:
    assert proxy.address_port is not None
    known = credentials.get(proxy.pk)
    return ProbeRequest(
        key=_key(proxy),
        proxy_host=proxy.address,
        proxy_port=proxy.address_port,
        url=proxy.health_url or str(settings().healthcheck_url),
        timeout_seconds=proxy.health_timeout_seconds,
        expected_status=frozenset(proxy.expected_status) or None,
        credentials=ProxyCredentials(known.username, known.password) if isinstance(known, Credentials) else None,
    )


@cache
def _shared_tls() -> ssl.SSLContext:
    return tls_context(settings().probe_ca_file)

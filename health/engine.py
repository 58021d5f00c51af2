"""Probe what is due of one provider entry. No network inside a transaction."""

from __future__ import annotations

import logging
import resource
import ssl
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from django.db import InterfaceError, OperationalError, connection

from health import latency, memory, turns
from health.folding import fold
from health.probes import tls_context
from health.prompt import answered
from health.results import Measured, Outcome, ProbeRequest, ProbeResult, ProxyCredentials, Stage
from health.running import Probes
from health.targets import url_of
from health.turns import Due, Turn, TurnLost
from providers.config import EXTERNAL
from proxyfleet.conf import settings
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.secrets import Credentials, SecretMissing, credentials_of
from proxyfleet.observability import metrics, tracing

logger = logging.getLogger(__name__)

TAKE_FOR = timedelta(seconds=60)
"""A turn takes up no probe later than this, and ends with the last one: a worker can be stopped in good time."""

_TAKE_SECONDS = 1.0
"""How often a turn looks for what came due meanwhile."""

_FOLD_SECONDS = 0.5
"""How long results gather before they are written: a slow proxy delays nobody's verdict but its own."""

_DATABASE_PATIENCE_SECONDS = 20.0
"""How long results are kept for a database that is being restarted: nearly as long as the turn is ours."""

_SPARE_DESCRIPTORS = 64
"""Left of what this process may still open: for its own connections, and for name servers, which the resolvers ask."""

_SETTLING = timedelta(seconds=10)
"""From the last moment that a probe can take to that when its worker counts as dead."""

_WAITING_PER_ACTIVE = 16
"""Probes that wait for a silent peer, for each that may be active: they cost a descriptor and a little memory."""


def probe_due(entry: str, now: datetime) -> int:
    """Probe the proxies of ``entry`` that are due, or asked for, and go on with what comes due while probes run.

    Returns how many probes were made; 0 also while another run has the turn.
    """
    turn = turns.begin(entry, now)
    if turn is None:
        return 0
    active, open_at_most = _places()
    with Probes[Measured](_shared_tls(), active=active, open_at_most=open_at_most) as probes:
        return _Run(turn, probes, now).go_on()


class _Run:
    """One turn and what is under way in it."""

    def __init__(self, turn: Turn, probes: Probes[Measured], now: datetime) -> None:
        self._turn = turn
        self._probes = probes
        self._began = now, time.monotonic()
        self._take_at = 0.0
        self._takes = True
        self._open: dict[Measured, Due] = {}
        """Taken up, and without a result that is written."""
        self._unwritten: list[ProbeResult[Measured]] = []
        self._unserved: list[int | None] = []
        self._left: set[Measured] = set()
        """Ran on when the turn was handed over."""
        self._latencies = latency.Tally(turn.entry)

    def go_on(self) -> int:
        probed = 0
        database_answered_at = time.monotonic()
        try:
            while self._takes or self._open:
                try:
                    self._take()
                    if not self._open:
                        break
                    self._unwritten += self._probes.results(wait_seconds=_FOLD_SECONDS)
                    probed += self._write()
                    database_answered_at = time.monotonic()
                except (OperationalError, InterfaceError) as error:
                    if time.monotonic() - database_answered_at > _DATABASE_PATIENCE_SECONDS:
                        raise
                    logger.warning("The results of probes wait for the database: %s", error)
                    connection.close()
                    time.sleep(_FOLD_SECONDS)
        finally:
            if self._takes:
                # On the way out of an error, what has no result stays due.
                unserved = [*self._unserved, *(due.slot_ms for due in self._open.values())]
                turns.end(self._turn, unserved=unserved, leaving={})
            self._latencies.write()
        return probed

    def _take(self) -> None:
        if not self._takes or time.monotonic() < self._take_at:
            return
        now = self._now()
        try:
            if now - self._began[0] >= TAKE_FOR:
                self._hand_over(now)
                return
            taken = turns.take(self._turn, now, running={key: due.slot_ms for key, due in self._open.items()})
        except TurnLost:
            logger.warning("Another run has taken over the probes of %s: this one was too slow", self._turn.entry)
            self._takes = False
            self._withdraw()
            return
        self._take_at = time.monotonic() + _TAKE_SECONDS
        self._open |= {due.key: due for due in taken}
        self._begin([due.proxy for due in taken])

    def _begin(self, proxies: Iterable[Proxy]) -> None:
        proxies = list(proxies)
        credentials = credentials_of(proxies)
        requests = []
        for proxy in proxies:
            known = credentials.get(proxy.pk)
            if isinstance(known, SecretMissing):
                self._unwritten.append(_without_credentials(proxy, known))
            else:
                requests.append(_request(proxy, known))
        self._probes.start(requests)

    def _write(self) -> int:
        """Write the results that have come, and say how many."""
        if not self._unwritten:
            return 0
        results, moment = self._unwritten, self._now()
        fold(results, moment)
        self._unwritten = []
        keys = [result.key for result in results]
        done = [self._open.pop(key) for key in keys]
        _count(results, {due.proxy.pk: due.proxy.lane or EXTERNAL for due in done})
        memory.keep({due.proxy.pk: due.proxy.uid for due in done}, results, moment)
        self._latencies.add((sum(result.seconds.values()) for result in results if result.is_ok), moment)
        if asked := [due.proxy.pk for due in done if due.asked]:
            answered(asked, self._turn.token)
        if left := self._left.intersection(keys):
            turns.settle(self._turn, left)
        return len(keys)

    def _hand_over(self, now: datetime) -> None:
        """Let another run take up what comes due from now on; what is under way ends here."""
        self._withdraw()
        longest = {key: timedelta(seconds=due.proxy.health_timeout_seconds) for key, due in self._open.items()}
        leaving = {key: now + seconds + _SETTLING for key, seconds in longest.items()}
        if turns.end(self._turn, unserved=self._unserved, leaving=leaving):
            self._left = set(leaving)
        self._takes = False

    def _withdraw(self) -> None:
        self._unserved += [self._open.pop(key).slot_ms for key in self._probes.withdraw()]

    def _now(self) -> datetime:
        moment, monotonic = self._began
        return moment + timedelta(seconds=time.monotonic() - monotonic)


def _places() -> tuple[int, int]:
    """How many probes may be active, and how many may be open: no more than this process may have descriptors.

    A batch that runs out of them would probe nobody. As many are asked for as the system allows.
    """
    active = settings().health_workers
    wanted = active * _WAITING_PER_ACTIVE
    in_use = open_descriptors() + _SPARE_DESCRIPTORS
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < in_use + wanted:
        if most == resource.RLIM_INFINITY or most > allowed:
            allowed = in_use + wanted if most == resource.RLIM_INFINITY else min(most, in_use + wanted)
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
        wanted = max(1, min(wanted, allowed - in_use))
    return min(active, wanted), wanted


def _count(results: Iterable[ProbeResult[Measured]], entries: Mapping[int, str]) -> None:
    for result in results:
        metrics.healthchecks.labels(entries[result.key.proxy_id], result.outcome.value).inc()
        if result.seconds:  # nothing was tried without
            metrics.healthcheck_duration.observe(seconds := sum(result.seconds.values()))
            if settings().trace_health_probes:
                outcome = {"outcome": result.outcome.value, "stage": result.stage.value}
                tracing.ended_span("probe", seconds, proxy=str(result.key.proxy_id), **outcome)


def open_descriptors() -> int:
    """How many files and sockets this process has open."""
    return len(list(Path("/dev/fd").iterdir()))


def _without_credentials(proxy: Proxy, why: SecretMissing) -> ProbeResult[Measured]:
    message = f"credentialsSecretRef: {why}"
    return ProbeResult(Measured.of(proxy), Outcome.CREDENTIALS_MISSING, Stage.CONNECT, {}, message, url=url_of(proxy))


def _request(proxy: Proxy, known: Credentials | None) -> ProbeRequest[Measured]:
    assert proxy.address_port is not None
    return ProbeRequest(
        key=Measured.of(proxy),
        proxy_host=proxy.address,
        proxy_port=proxy.address_port,
        url=url_of(proxy),
        timeout_seconds=proxy.health_timeout_seconds,
        expected_status=frozenset(proxy.expected_status) or None,
        credentials=ProxyCredentials(known.username, known.password) if known else None,
        public_names=settings().refuse_private_addresses,
    )


@cache
def _shared_tls() -> ssl.SSLContext:
    return tls_context(settings().probe_ca_file)

"""From the results of probes to rows: counters, verdict, event, and a hint to the reconciler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction

from health.results import ProbeResult
from health.verdicts import Counters, Thresholds
from proxyfleet.fleet import hints
from proxyfleet.fleet.claims import event_of
from proxyfleet.fleet.models import EventKind, Proxy, ProxyEvent
from proxyfleet.fleet.phases import Verdict

_COLUMNS = {
    "verdict": "text",
    "probed_serial": "integer",
    "probe_successes": "integer",
    "probe_failures": "integer",
    "last_outcome": "text",
    "health_message": "text",
    "health_changed_at": "timestamptz",
    "egress_ip": "inet",
}
"""What health writes of a proxy, with PostgreSQL's types."""

_READ = ("instance_serial", "success_threshold", "failure_threshold", *_COLUMNS)

# When a probe target fails, thousands of rows change within seconds: `bulk_update` takes five times as long.
# Counters are nobody's news; a verdict, which moves `health_changed_at`, and the address that targets see are.
_WRITE = f"""
    UPDATE fleet_proxy SET
        {", ".join(f"{column} = new.{column}" for column in _COLUMNS)},
        revision = revision + (
            (fleet_proxy.health_changed_at, fleet_proxy.egress_ip)
            IS DISTINCT FROM (new.health_changed_at, new.egress_ip)
        )::integer
    FROM unnest(%s::bigint[], {", ".join(f"%s::{kind}[]" for kind in _COLUMNS.values())})
        AS new (id, {", ".join(_COLUMNS)})
    WHERE fleet_proxy.id = new.id
"""  # noqa: S608  made of the constants above


@dataclass(frozen=True, slots=True)
class Measured:
    """What a result is about: an instance of a proxy, not just the proxy."""

    proxy_id: int
    instance_serial: int


def fold(results: Iterable[ProbeResult[Measured]], now: datetime) -> None:
    """Write what the results change: nothing for proxies that stay as they are.

    The number of statements does not depend on the number of results. A result on an instance that has been replaced,
    or whose address has changed, is dropped.
    """
    by_proxy = {result.key.proxy_id: result for result in results}
    proxies = Proxy.objects.filter(pk__in=by_proxy).only(*_READ)
    changing = [proxy.pk for proxy in proxies if _absorb(proxy, by_proxy[proxy.pk], now)]
    if not changing:
        return
    with transaction.atomic():
        # Again, under a lock: the reconciler or another probe may have been here meanwhile.
        locked = Proxy.objects.filter(pk__in=changing).select_for_update(no_key=True).order_by("pk")
        changed, turned, events = [], [], []
        for proxy in locked:
            before, result = proxy.current_verdict, by_proxy[proxy.pk]
            if not _absorb(proxy, result, now):
                continue
            changed.append(proxy)
            if proxy.verdict != before:
                turned.append(proxy.pk)
                message = ": ".join(filter(None, [f"{before} → {proxy.verdict}", result.message]))
                events.append(event_of(proxy, EventKind.HEALTH_CHANGED, now, reason=result.outcome, message=message))
        _write(changed)
        ProxyEvent.objects.bulk_create(events)
        if turned:
            hints.wake(turned, now)


def _absorb(proxy: Proxy, result: ProbeResult[Measured], now: datetime) -> bool:
    """Bring the health columns of ``proxy`` up to date in memory; says whether that changed any."""
    if proxy.instance_serial != result.key.instance_serial:
        return False
    columns = [getattr(proxy, column) for column in _COLUMNS]
    if proxy.probed_serial != proxy.instance_serial:
        proxy.probed_serial = proxy.instance_serial
        proxy.egress_ip = None
        before = Counters()
    else:
        before = Counters(Verdict(proxy.verdict), proxy.probe_successes, proxy.probe_failures)
    after = before.after(
        ok=result.is_ok, thresholds=Thresholds(success=proxy.success_threshold, failure=proxy.failure_threshold)
    )
    proxy.verdict = after.verdict.value
    proxy.probe_successes = after.successes
    proxy.probe_failures = after.failures
    proxy.egress_ip = result.egress_ip or proxy.egress_ip
    explains = not result.is_ok and after.verdict is not Verdict.HEALTHY
    if after.verdict is not before.verdict or (explains and after != before):
        # They tell why the proxy is not healthy, so a success that is not enough yet does not blank them.
        proxy.last_outcome = result.outcome.value
        proxy.health_message = result.message
    if after.verdict is not before.verdict:
        proxy.health_changed_at = now
    return columns != [getattr(proxy, column) for column in _COLUMNS]


def _write(proxies: Sequence[Proxy]) -> None:
    arrays = [[getattr(proxy, column) for proxy in proxies] for column in ("id", *_COLUMNS)]
    with connection.cursor() as cursor:
        cursor.execute(_WRITE, arrays)

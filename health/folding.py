"""From the results of probes to rows: counters, verdict, event, and a hint to the reconciler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import connection, transaction

from health.egress import Seen, egress_events
from health.results import Measured, Outcome, ProbeResult, Stage
from health.schedule import epoch_ms
from health.suspicion import Heard, Suspicion, blame
from health.targets import Weighing, fleets, host_of, keep, suspicions, to_be_told, url_of, weigh
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
    "leaking_headers": "text",
}
"""What health writes of a proxy, with PostgreSQL's types."""

_READ = (
    "instance_serial",
    "health_url",
    "health_interval_seconds",
    "health_timeout_seconds",
    "success_threshold",
    "failure_threshold",
    *_COLUMNS,
)

_TAKEN_BACK = "the probe target is suspect; its failures do not count"

# When a probe target fails, thousands of rows change within seconds: `bulk_update` takes five times as long.
# Counters are nobody's news; a verdict, which moves `health_changed_at`, and the address that targets see are.
_WRITE = f"""
    UPDATE fleet_proxy SET
        {", ".join(f"{column} = new.{column}" for column in _COLUMNS)},
        revision = revision + (
            (fleet_proxy.health_changed_at, fleet_proxy.egress_ip, fleet_proxy.leaking_headers)
            IS DISTINCT FROM (new.health_changed_at, new.egress_ip, new.leaking_headers)
        )::integer
    FROM unnest(%s::bigint[], {", ".join(f"%s::{kind}[]" for kind in _COLUMNS.values())})
        AS new (id, {", ".join(_COLUMNS)})
    WHERE fleet_proxy.id = new.id
"""  # noqa: S608  made of the constants above


def fold(results: Iterable[ProbeResult[Measured]], now: datetime) -> None:
    """Write what the results change: nothing for proxies that stay as they are.

    The number of statements does not depend on the number of results. A result on an instance that has been replaced,
    or whose address or probe URL has changed, is dropped. While a probe target is suspect, failures beyond the proxy
    change nothing.
    """
    wanted = {result.key.proxy_id: result for result in results}
    read = {proxy.pk: proxy for proxy in Proxy.objects.filter(pk__in=wanted).only(*_READ)}
    by_proxy = {pk: result for pk, result in wanted.items() if pk in read and _is_current(result, read[pk])}
    weighing = _weigh(by_proxy, read, suspicions(), now)
    changing = [pk for pk in by_proxy if _absorb(read[pk], by_proxy[pk], weighing, now)]
    if not changing and not weighing.after:
        return
    with transaction.atomic():
        # Again, under locks: the reconciler or another worker may have been here meanwhile. Targets come first.
        suspected = {host_of(url_of(read[pk])) for pk in by_proxy} if weighing.before or weighing.after else set()
        held = suspicions(lock=suspected) if suspected else {}
        ids = {*changing, *(pk for each in held.values() for pk in each.evidence), *to_be_told(weighing)}
        locked = Proxy.objects.filter(pk__in=ids).select_for_update(no_key=True).order_by("pk")
        mine = {proxy.pk: proxy for proxy in locked}
        proxies = read | mine
        current = {pk: each for pk, each in by_proxy.items() if _is_current(each, proxies[pk])}
        weighing = _weigh(current, proxies, held, now)
        before = {pk: Seen(proxy.current_verdict, proxy.egress_ip, proxy.leaking_headers) for pk, proxy in mine.items()}
        taken_back = _take_back(weighing, mine, now)
        absorbed = {pk for pk in current.keys() & mine.keys() if _absorb(mine[pk], current[pk], weighing, now)}
        changed = [mine[pk] for pk in sorted(absorbed | taken_back)]
        _write(changed)
        keep(weighing, mine, now)
        turned = [proxy for proxy in changed if proxy.current_verdict is not before[proxy.pk].verdict]
        events = [
            _turn_event(proxy, before[proxy.pk].verdict, current.get(proxy.pk) if proxy.pk in absorbed else None, now)
            for proxy in turned
        ]
        events += egress_events([(proxy, before[proxy.pk]) for proxy in changed], now)
        ProxyEvent.objects.bulk_create(events)
        if turned:
            hints.wake([proxy.pk for proxy in turned], now)


def _turn_event(proxy: Proxy, before: Verdict, result: ProbeResult[Measured] | None, now: datetime) -> ProxyEvent:
    """Of a verdict that has turned, by ``result`` or, without one, because what led to it was taken back."""
    reason, why = ("ProbeTargetSuspect", _TAKEN_BACK) if result is None else (result.outcome.value, result.message)
    message = ": ".join(filter(None, [f"{before} → {proxy.verdict}", why]))
    return event_of(proxy, EventKind.HEALTH_CHANGED, now, reason=reason, message=message)


def _is_current(result: ProbeResult[Measured], proxy: Proxy) -> bool:
    return proxy.instance_serial == result.key.instance_serial and result.url in {"", url_of(proxy)}


def _weigh(
    results: Mapping[int, ProbeResult[Measured]],
    proxies: Mapping[int, Proxy],
    held: Mapping[str, Suspicion],
    now: datetime,
) -> Weighing:
    """What the results say of their targets: nothing, where nothing is suspected and nothing new failed."""
    heard = []
    for pk, result in results.items():
        proxy, stage = proxies[pk], blame(result)
        host = host_of(url_of(proxy))
        suspicion = held.get(host)
        is_known = suspicion is not None and pk in suspicion.evidence
        if stage is not None and proxy.current_verdict is Verdict.UNHEALTHY and not is_known:
            continue  # it failed before, for reasons of its own
        until = now + timedelta(seconds=proxy.health_interval_seconds + proxy.health_timeout_seconds)
        each = Heard(pk, proxy.instance_serial, stage, epoch_ms(until), _counters(proxy))
        heard.append((host, each, result.message))
    news = {host for host, each, _ in heard if each.stage not in {None, Stage.CONNECT}} | held.keys()
    heard = [each for each in heard if each[0] in news]
    return weigh(held, heard, fleets(held, {host for host, _, _ in heard}) if heard else {}, now)


def _take_back(weighing: Weighing, proxies: Mapping[int, Proxy], now: datetime) -> set[int]:
    """Undo what was counted against proxies while it was not known yet that their target is to blame."""
    restored = set()
    for opened, _ in weighing.opened.values():
        for heard in opened.failures:
            proxy = proxies.get(heard.proxy_id)
            if proxy is None or proxy.probed_serial != heard.instance_serial or _counters(proxy) == heard.before:
                continue
            if proxy.verdict != heard.before.verdict:
                proxy.health_changed_at = now
                proxy.last_outcome = Outcome.OK.value if heard.before.verdict is Verdict.HEALTHY else ""
                proxy.health_message = ""
            proxy.verdict = heard.before.verdict.value
            proxy.probe_successes, proxy.probe_failures = heard.before.successes, heard.before.failures
            restored.add(proxy.pk)
    return restored


def _counters(proxy: Proxy) -> Counters:
    if proxy.probed_serial != proxy.instance_serial:
        return Counters()
    return Counters(Verdict(proxy.verdict), proxy.probe_successes, proxy.probe_failures)


def _absorb(proxy: Proxy, result: ProbeResult[Measured], weighing: Weighing, now: datetime) -> bool:
    """Bring the health columns of ``proxy`` up to date in memory; says whether that changed any."""
    if blame(result) not in {None, Stage.CONNECT} and weighing.is_open(host_of(url_of(proxy))):
        return False
    columns = [getattr(proxy, column) for column in _COLUMNS]
    before = _counters(proxy)
    if proxy.probed_serial != proxy.instance_serial:
        proxy.probed_serial = proxy.instance_serial
        proxy.egress_ip = None
        proxy.leaking_headers = ""
    after = before.after(
        ok=result.is_ok, thresholds=Thresholds(success=proxy.success_threshold, failure=proxy.failure_threshold)
    )
    proxy.verdict = after.verdict.value
    proxy.probe_successes = after.successes
    proxy.probe_failures = after.failures
    proxy.egress_ip = result.egress_ip or proxy.egress_ip
    if result.leaking_headers is not None:
        proxy.leaking_headers = ", ".join(result.leaking_headers)
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

"""What is suspected of each probe target, in the database: shared by all workers, and written only while it changes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from django.db.models import Count, F, Q, QuerySet

from health.http1 import parse_target
from health.results import Stage
from health.schedule import epoch_ms
from health.suspicion import Closed, Heard, Opened, Suspicion, hear
from health.verdicts import Counters
from proxyfleet.conf import settings
from proxyfleet.fleet.claims import event_of
from proxyfleet.fleet.models import EventKind, ProbeTarget, Proxy, ProxyEvent
from proxyfleet.fleet.phases import Verdict

logger = logging.getLogger(__name__)


def url_of(proxy: Proxy) -> str:
    """What is fetched through it."""
    return proxy.health_url or str(settings().healthcheck_url)


@lru_cache(maxsize=1024)
def host_of(url: str) -> str:
    """Host and port of a probe URL: what one breaker is for. Empty for a URL that can't be fetched."""
    try:
        return parse_target(url).authority
    except ValueError:
        return ""


@dataclass(slots=True)
class Weighing:
    """What some results make of the suspicions of their targets."""

    before: Mapping[str, Suspicion]
    after: dict[str, Suspicion] = field(default_factory=dict)
    opened: dict[str, tuple[Opened, str]] = field(default_factory=dict)
    """With what one of the failing probes said."""
    closed: set[str] = field(default_factory=set)

    def is_open(self, host: str) -> bool:
        suspicion = self.after.get(host) or self.before.get(host)
        return suspicion is not None and suspicion.is_open


def weigh(
    before: Mapping[str, Suspicion], heard: Iterable[tuple[str, Heard, str]], fleets: Mapping[str, int], now: datetime
) -> Weighing:
    """``heard`` comes with the target's host and the probe's message."""
    weighing = Weighing(before)
    now_ms = epoch_ms(now)
    for host, each, message in heard:
        suspicion = weighing.after.get(host) or before.get(host) or _NONE
        weighing.after[host], turn = hear(suspicion, each, fleet=fleets.get(host, 0), now_ms=now_ms)
        match turn:
            case Opened():
                weighing.opened[host] = turn, message
            case Closed() if host in weighing.opened:
                del weighing.opened[host]
            case Closed():
                weighing.closed.add(host)
    weighing.after = {
        host: suspicion for host, suspicion in weighing.after.items() if suspicion != before.get(host, _NONE)
    }
    return weighing


_NONE = Suspicion()


def suspicions(*, lock: Collection[str] | None = None) -> dict[str, Suspicion]:
    """By host; only of targets of which something is held. ``lock`` keeps those rows until the transaction ends."""
    rows = ProbeTarget.objects.all()
    if lock is not None:
        rows = rows.filter(host__in=lock).select_for_update(no_key=True).order_by("host")
    return {row.host: _read(row) for row in rows}


def fleets(held: Mapping[str, Suspicion], hosts: Collection[str]) -> dict[str, int]:
    """How many proxies are probed with each of these and are not unhealthy, but perhaps by what is being weighed."""
    weighed = [pk for suspicion in held.values() for pk in suspicion.evidence]
    fell_before = Q(verdict=Verdict.UNHEALTHY.value, probed_serial=F("instance_serial")) & ~Q(pk__in=weighed)
    fit = Proxy.objects.exclude(address="").filter(~fell_before, deletion_requested_at=None)
    totals = dict.fromkeys(hosts, 0)
    for url, count in fit.order_by().values_list("health_url").annotate(Count("pk")):
        if (host := host_of(url or str(settings().healthcheck_url))) in totals:
            totals[host] += count
    return totals


def keep(weighing: Weighing, proxies: Mapping[int, Proxy], now: datetime) -> None:
    """Write what changed of the suspicions, and tell of breakers that opened or closed, in the caller's transaction."""
    gone = [host for host, suspicion in weighing.after.items() if suspicion == _NONE]
    if weighing.closed:
        _tell_closed(ProbeTarget.objects.filter(host__in=weighing.closed), now)
    ProbeTarget.objects.filter(host__in=gone).delete()
    for host, suspicion in weighing.after.items():
        if host in gone:
            continue
        columns: dict[str, object] = {"evidence": [_as_json(each) for each in suspicion.evidence.values()]}
        if host in weighing.opened:
            columns |= _tell_opened(host, *weighing.opened[host], proxies, now)
        ProbeTarget.objects.update_or_create(host=host, defaults=columns)


def to_be_told(weighing: Weighing) -> set[int]:
    """The proxies whose history `keep` will write to."""
    failed = {each.proxy_id for opened, _ in weighing.opened.values() for each in opened.failures}
    if weighing.closed:
        for witnesses in ProbeTarget.objects.filter(host__in=weighing.closed).values_list("witnesses", flat=True):
            failed.update(witnesses)
    return failed


def forget_unused(now: datetime) -> int:
    """Drop what is suspected of targets that no proxy is probed with any more; returns of how many."""
    rows = list(ProbeTarget.objects.all())
    if not rows:
        return 0
    urls = Proxy.objects.filter(deletion_requested_at=None).values_list("health_url", flat=True).distinct()
    used = {host_of(url or str(settings().healthcheck_url)) for url in urls}
    unused = ProbeTarget.objects.filter(host__in=[row.host for row in rows if row.host not in used])
    _tell_closed(unused.exclude(suspect_since=None), now)
    return unused.delete()[0]


def _tell_opened(
    host: str, opened: Opened, message: str, proxies: Mapping[int, Proxy], now: datetime
) -> dict[str, object]:
    failed = sum(each.stage is opened.stage for each in opened.failures)
    logger.warning(
        "%s: %s is suspect, not the proxies: %d of the last %d failed at the %s stage (%s). Verdicts are held.",
        EventKind.PROBE_TARGET_SUSPECT.value,
        *(host, failed, opened.heard, opened.stage.value, message),
    )
    witnesses = [proxies[each.proxy_id] for each in opened.failures if each.proxy_id in proxies]
    text = (
        f"{host} is suspect, not the proxies: {failed} of the last {opened.heard} failed at the {opened.stage.value} "
        f"stage. Verdicts are held until it answers. {message}"
    )
    _tell(witnesses, EventKind.PROBE_TARGET_SUSPECT, text, now)
    return {
        "suspect_since": now,
        "stage": opened.stage.value,
        "failed": failed,
        "heard": opened.heard,
        "message": message,
        "witnesses": [proxy.pk for proxy in witnesses],
    }


def _tell_closed(targets: QuerySet[ProbeTarget], now: datetime) -> None:
    for target in targets:
        logger.warning("%s: %s answers again", EventKind.PROBE_TARGET_CLEARED.value, target.host)
        told = list(Proxy.objects.filter(pk__in=target.witnesses).order_by("pk"))
        since = (
            ""
            if target.suspect_since is None
            else f" It was suspect since {target.suspect_since:%Y-%m-%d %H:%M:%S} UTC."
        )
        _tell(told, EventKind.PROBE_TARGET_CLEARED, f"{target.host} answers again: verdicts count.{since}", now)


def _tell(proxies: Sequence[Proxy], kind: EventKind, message: str, now: datetime) -> None:
    ProxyEvent.objects.bulk_create(event_of(proxy, kind, now, message=message) for proxy in proxies)
    # So that the bridge looks for events to tell.
    Proxy.objects.filter(pk__in=[proxy.pk for proxy in proxies]).update(revision=F("revision") + 1)


def _as_json(heard: Heard) -> list[object]:
    before = heard.before
    counters = [before.verdict.value, before.successes, before.failures]
    return [heard.proxy_id, heard.instance_serial, heard.stage, heard.until_ms, *counters]


def _read(row: ProbeTarget) -> Suspicion:
    evidence = {}
    for pk, serial, stage, until_ms, verdict, successes, failures in row.evidence:
        before = Counters(Verdict(verdict), successes, failures)
        evidence[pk] = Heard(pk, serial, None if stage is None else Stage(stage), until_ms, before)
    return Suspicion(is_open=row.suspect_since is not None, evidence=evidence)

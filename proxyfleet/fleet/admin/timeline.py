"""The history of one proxy: its events, and what its lessees did and said, as one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString

from proxyfleet.fleet.admin.badges import badge, event_badge
from proxyfleet.fleet.models import EventKind, Proxy, ProxyEvent
from proxyfleet.fleet.ports import LeasingNews, ports

PER_PAGE = 25
OF_A_MOMENT = 500
"""Entries of the last moment of a page, which stay together: the next page begins before it."""
DAWN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Entry:
    at: datetime
    what: SafeString
    reason: str = ""
    message: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A part of the history that can be looked at alone."""

    label: str
    url: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    entries: list[Entry]
    choices: list[Choice]
    older_url: str = ""
    newest_url: str = ""


_Source = Callable[[Proxy, datetime, datetime, int], Sequence[Entry]]
"""Of a proxy: from a moment on, before a moment, at most so many; the newest first."""


def timeline_of(proxy: Proxy, now: datetime, *, show: str, before: str) -> Timeline:
    """One page. ``show`` names a part, ``before`` is where the page before ended; what makes no sense is ignored."""
    show = show if show in SOURCES else ""
    until = _moment(before)
    chosen = SOURCES[show] if show else (_events, _leases, _reports)
    found: list[Entry] = []
    for source in chosen:
        found += source(proxy, DAWN, until or now + timedelta(days=1), PER_PAGE + 1)
    found.sort(key=lambda entry: entry.at, reverse=True)
    last = found[PER_PAGE - 1].at if len(found) > PER_PAGE else None
    if last is not None:
        found = [entry for entry in found if entry.at > last]
        for source in chosen:
            found += source(proxy, last, last + timedelta(microseconds=1), OF_A_MOMENT)
    return Timeline(
        entries=found,
        choices=[_choice("", "All", show), *(_choice(name, name.capitalize(), show) for name in SOURCES)],
        older_url=_url(show, last) if last else "",
        newest_url=_url(show) if until else "",
    )


def _choice(name: str, label: str, show: str) -> Choice:
    return Choice(label, _url(name), name == show)


def _url(show: str, before: datetime | None = None) -> str:
    values = {"show": show} if show else {}
    if before is not None:
        values["before"] = before.isoformat()
    return f"?{urlencode(values)}#history"


def _moment(text: str) -> datetime | None:
    try:
        moment = parse_datetime(text)
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def _events(proxy: Proxy, since: datetime, before: datetime, limit: int, **where: object) -> Sequence[Entry]:
    events = ProxyEvent.objects.filter(proxy_uid=proxy.uid, at__gte=since, at__lt=before, **where)
    return [
        Entry(event.at, event_badge(event), event.reason, event.message, event.actor)
        for event in events.order_by("-id")[:limit]
    ]


def _phases(proxy: Proxy, since: datetime, before: datetime, limit: int) -> Sequence[Entry]:
    return _events(proxy, since, before, limit, kind=EventKind.PHASE_CHANGED)


def _verdicts(proxy: Proxy, since: datetime, before: datetime, limit: int) -> Sequence[Entry]:
    return _events(proxy, since, before, limit, kind=EventKind.HEALTH_CHANGED)


def _leases(proxy: Proxy, since: datetime, before: datetime, limit: int) -> Sequence[Entry]:
    return _news(ports.leases.lease_news(proxy, since=since, before=before, limit=limit))


def _reports(proxy: Proxy, since: datetime, before: datetime, limit: int) -> Sequence[Entry]:
    return _news(ports.leases.report_news(proxy, since=since, before=before, limit=limit))


def _news(found: Sequence[LeasingNews]) -> list[Entry]:
    return [Entry(one.at, badge(one.what, "danger" if one.is_bad else "default"), message=one.message) for one in found]


SOURCES: dict[str, tuple[_Source, ...]] = {
    "events": (_events,),
    "phases": (_phases,),
    "health": (_verdicts,),
    "leases": (_leases,),
    "reports": (_reports,),
}

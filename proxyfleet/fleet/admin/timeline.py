"""The history of one proxy: its events, and what its lessees did and said, as one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString

from proxyfleet.fleet.admin.badges import badge, event_badge
from proxyfleet.fleet.models import EventKind, Proxy, ProxyEvent
from proxyfleet.fleet.ports import LeasingNews, ports

PER_PAGE = 25


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
    kept_days: int = field(default=0)


_Source = Callable[[Proxy, datetime, int], Sequence[Entry]]


def timeline_of(proxy: Proxy, now: datetime, *, show: str, before: str) -> Timeline:
    """One page. ``show`` names a part, ``before`` is the moment where the page before ended; anything else is ignored.

    Entries of one moment stay together: what shares the last moment of a page is on it as well.
    """
    show = show if show in SOURCES else ""
    until = _moment(before)
    chosen = SOURCES[show] if show else (_events, _leases, _reports)
    found: list[Entry] = []
    for source in chosen:
        found += source(proxy, until or now + timedelta(days=1), PER_PAGE + 1)
    found.sort(key=lambda entry: entry.at, reverse=True)
    shown = found[:PER_PAGE]
    last = shown[-1].at if len(found) > PER_PAGE else None
    shown += [entry for entry in found[PER_PAGE:] if entry.at == last]
    return Timeline(
        entries=shown,
        choices=[_choice("", "All", show), *(_choice(name, name.capitalize(), show) for name in SOURCES)],
        older_url=_url(show, last) if len(found) > len(shown) and last else "",
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


def _events(proxy: Proxy, before: datetime, limit: int, **where: object) -> Sequence[Entry]:
    events = ProxyEvent.objects.filter(proxy_uid=proxy.uid, at__lt=before, **where)
    return [
        Entry(event.at, event_badge(event), event.reason, event.message, event.actor)
        for event in events.order_by("-id")[:limit]
    ]


def _phases(proxy: Proxy, before: datetime, limit: int) -> Sequence[Entry]:
    return _events(proxy, before, limit, kind=EventKind.PHASE_CHANGED)


def _verdicts(proxy: Proxy, before: datetime, limit: int) -> Sequence[Entry]:
    return _events(proxy, before, limit, kind=EventKind.HEALTH_CHANGED)


def _leases(proxy: Proxy, before: datetime, limit: int) -> Sequence[Entry]:
    return _news(ports.leases.lease_news(proxy, before=before, limit=limit))


def _reports(proxy: Proxy, before: datetime, limit: int) -> Sequence[Entry]:
    return _news(ports.leases.report_news(proxy, before=before, limit=limit))


def _news(found: Sequence[LeasingNews]) -> list[Entry]:
    return [Entry(one.at, badge(one.what, "danger" if one.is_bad else "default"), message=one.message) for one in found]


SOURCES: dict[str, tuple[_Source, ...]] = {
    "events": (_events,),
    "phases": (_phases,),
    "health": (_verdicts,),
    "leases": (_leases,),
    "reports": (_reports,),
}

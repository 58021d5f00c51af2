"""What the dashboard shows to a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max

from leasing import statistics
from proxyfleet.conf import settings
from proxyfleet.dashboard import attention, history, tiles
from proxyfleet.dashboard.attention import Person, may
from proxyfleet.dashboard.models import FleetMinute
from proxyfleet.dashboard.queues import Broker, look
from proxyfleet.fleet import dashboard
from proxyfleet.fleet.backends import providers
from proxyfleet.fleet.completeness import FRESH

REFRESH_SECONDS = 10
SCHEDULE_LATE = timedelta(minutes=3)
"""The schedule has each minute written when it is over: a newest one that is older is late."""

LED = timedelta(seconds=30)
"""The leading bridge gives a sign of life every ten seconds."""


@dataclass(frozen=True, slots=True)
class State:
    """How something is that runs."""

    title: str
    verdict: str
    colour: str
    text: str = ""
    at: datetime | None = None


def page_of(person: Person, now: datetime) -> dict[str, Any]:
    """The template's context, for somebody who may see proxies."""
    may_see_leases, may_see_providers = may(person, "leasing.view_lease"), may(person, "fleet.view_providerstate")
    census = dashboard.census(now)
    states = dashboard.checked_providers(providers().names()) if may_see_providers else []
    shown = [tiles.proxies(census), tiles.healthy(census)]
    if may_see_leases:
        totals = statistics.totals(now)
        shown.append(tiles.leases(totals))
        if may(person, "leasing.view_cooldown"):
            shown.append(tiles.cooldowns(totals))
    if may_see_providers:
        shown.append(tiles.providers(states))
    return {
        "now": now,
        "refresh_seconds": REFRESH_SECONDS,
        "tiles": shown,
        "is_empty": census.total == 0,
        "may_declare": may(person, "fleet.add_proxy"),
        "attention": attention.items(census, dashboard.troubled(now), dashboard.shared_addresses(), states, person),
        "charts": history.charts(now, leasing=may_see_leases),
        "sync": _sync(dashboard.mirror(), now) if settings().cluster_sync else None,
    }


def queues_of(now: datetime) -> dict[str, Any]:
    """The same of what the broker tells. Takes up to a second."""
    broker = look()
    flower = settings().flower_url
    return {
        "now": now,
        "broker": broker,
        "running": [] if broker.problem else [_workers(broker), _schedule(now)],
        "flower_url": str(flower) if flower else "",
    }


def _workers(broker: Broker) -> State:
    count = len(broker.workers)
    if not count:
        return State("Workers", "none answers", "danger", "Nothing is probed or reconciled until one runs.")
    return State("Workers", f"{count} alive", "success", ", ".join(broker.workers))


def _schedule(now: datetime) -> State:
    newest = FleetMinute.objects.aggregate(at=Max("minute"))["at"]
    if newest is None:
        return State("Schedule", "not seen yet", "default", "Beat has a first minute written soon after its start.")
    ran_at = newest + timedelta(minutes=1)
    if now - ran_at > SCHEDULE_LATE:
        return State("Schedule", "late", "danger", "Either beat does not run, or no worker does. Last run", ran_at)
    return State("Schedule", "runs", "success", "Last run", ran_at)


def _sync(mirror: dashboard.Mirror, now: datetime) -> list[State]:
    row = mirror.row
    leads = row is not None and row.led_at is not None and now - row.led_at <= LED
    leader = row.leader.partition("_")[0] if row else ""
    if row is None or row.led_at is None:
        connection = State("Bridge", "never seen", "danger", "Does manage.py k8s_sync run?")
    elif leads:
        connection = State("Bridge", "connected", "success", f"{leader} leads, seen", row.led_at)
    else:
        text = f"None leads: does manage.py k8s_sync run, and reach the API server? {leader} last led"
        connection = State("Bridge", "not connected", "danger", text, row.led_at)
    if row is None or row.complete_at is None:
        inward = State("From the cluster", "never complete", "warning", "Not all Proxy objects have been taken in yet.")
    else:
        is_fresh = now - row.complete_at <= FRESH
        inward = State(
            "From the cluster",
            "up to date" if is_fresh else "behind",
            "success" if is_fresh else "danger",
            "All Proxy objects were taken in",
            row.complete_at,
        )
    waiting = mirror.unpublished
    outward = State(
        "To the cluster",
        f"{waiting:,} to write" if waiting else "up to date",
        "success" if not waiting else "info" if leads else "warning",
        "Changes that the status of their objects does not show yet." if waiting else "",
    )
    return [connection, inward, outward]

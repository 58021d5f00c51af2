"""The numbers at the top of the dashboard, each with a link to the list that it counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from leasing.statistics import Totals
from proxyfleet.dashboard.attention import LIST
from proxyfleet.fleet.admin.badges import PHASE_COLOURS
from proxyfleet.fleet.dashboard import Census
from proxyfleet.fleet.models import ProviderState
from proxyfleet.fleet.phases import Phase

GOOD_SHARE, FAIR_SHARE = 95, 80
"""Percent of the fleet that are Ready."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the things that a tile is made of."""

    label: str
    number: int
    colour: str
    url: str


@dataclass(frozen=True, slots=True)
class Tile:
    key: str
    title: str
    icon: str
    value: str
    of: str
    """What the value is of, in a few words."""
    url: str
    share: float | None = None
    """Percent, for a bar."""
    colour: str = "info"
    parts: Sequence[Part] = ()


def proxies(census: Census) -> Tile:
    parts = [Part(phase, count, PHASE_COLOURS[phase], _phase(phase)) for phase, count in census.phases.items() if count]
    if census.cordoned:
        parts.append(Part("Cordoned", census.cordoned, "warning", _list(cordoned__exact="1")))
    return Tile("proxies", "Proxies", "lan", f"{census.total:,}", "declared", reverse(LIST), parts=parts)


def healthy(census: Census) -> Tile:
    share = 100 * census.ready / census.wanted if census.wanted else None
    return Tile(
        "healthy",
        "Healthy",
        "monitor_heart",
        "—" if share is None else f"{int(share * 10) / 10:g} %",  # never rounded up to all of them
        f"{census.ready:,} of {census.wanted:,} Ready",
        _phase(Phase.READY),
        share=share,
        colour="success" if share is None or share >= GOOD_SHARE else "warning" if share >= FAIR_SHARE else "danger",
    )


def leases(totals: Totals) -> Tile:
    return Tile(
        "leases",
        "Active leases",
        "key",
        f"{totals.active:,}",
        f"of {totals.capacity:,} that fit",
        reverse("admin:leasing_lease_changelist"),
        share=100 * totals.active / totals.capacity if totals.capacity else None,
    )


def cooldowns(totals: Totals) -> Tile:
    return Tile(
        "cooldowns",
        "Cooldowns",
        "ac_unit",
        f"{totals.cooling:,}",
        "proxies at rest for a target",
        reverse("admin:leasing_cooldown_changelist"),
    )


def providers(states: Sequence[ProviderState]) -> Tile:
    up = sum(state.check_ready is True for state in states)
    down = sum(state.check_ready is False for state in states)
    url = reverse("admin:fleet_providerstate_changelist")
    return Tile(
        "providers",
        "Providers",
        "dns",
        f"{up} of {len(states)}" if states else "none",
        "up" if states else "configured: External proxies only",
        url,
        share=100 * up / len(states) if states else None,
        colour="danger" if down else "success",
        parts=[
            Part(
                state.entry,
                sum(not target["ready"] for target in state.check_targets) or 1,
                "danger",
                reverse("admin:fleet_providerstate_change", args=[state.entry]),
            )
            for state in states
            if state.check_ready is False
        ],
    )


def _phase(phase: Phase) -> str:
    return _list(phase__exact=phase.value)


def _list(**query: str) -> str:
    return f"{reverse(LIST)}?{urlencode(query)}"

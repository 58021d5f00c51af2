"""The admin's sidebar."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

SECTIONS = (
    (
        "Fleet",
        (
            ("Proxies", "lan", "fleet", "proxy"),
            ("Events", "history", "fleet", "proxyevent"),
            ("Providers", "dns", "fleet", "providerstate"),
        ),
    ),
    (
        "Leasing",
        (
            ("Leases", "handshake", "leasing", "lease"),
            ("Ended leases", "event_available", "leasing", "endedlease"),
            ("Targets", "travel_explore", "leasing", "target"),
            ("Cooldowns", "ac_unit", "leasing", "cooldown"),
            ("Reports", "rate_review", "leasing", "report"),
            ("API tokens", "vpn_key", "leasing", "apitoken"),
        ),
    ),
    ("Access", (("Users", "person", "auth", "user"), ("Groups", "group", "auth", "group"))),
)

# Targets are no table, but what cooldowns and reports say.
PAGES = {"target": "admin:leasing_target_list"}
PERMISSIONS = {"target": "cooldown"}


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """What this person may look at, in django-unfold's terms."""
    return [
        {
            "title": title,
            "separator": title != SECTIONS[0][0],
            "items": [
                _item(request, label, icon, app, model)
                for label, icon, app, model in items
                if request.user.has_perm(f"{app}.view_{PERMISSIONS.get(model, model)}")
            ],
        }
        for title, items in SECTIONS
    ]


def _item(request: HttpRequest, label: str, icon: str, app: str, model: str) -> dict[str, Any]:
    link = reverse(PAGES.get(model, f"admin:{app}_{model}_changelist"))
    item: dict[str, Any] = {"title": label, "icon": icon, "link": link}
    if model == "cooldown":  # below which the targets' pages are
        item["active"] = request.path.startswith(link) and not request.path.startswith(reverse(PAGES["target"]))
    return item

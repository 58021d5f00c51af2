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
                {"title": label, "icon": icon, "link": reverse(PAGES.get(model, f"admin:{app}_{model}_changelist"))}
                for label, icon, app, model in items
                if request.user.has_perm(f"{app}.view_{PERMISSIONS.get(model, model)}")
            ],
        }
        for title, items in SECTIONS
    ]

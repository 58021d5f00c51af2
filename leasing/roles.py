"""What the ready-made groups of people may do with leases and tokens."""

from __future__ import annotations

from collections.abc import Mapping

from proxyfleet.fleet.roles import Role, grant

LEASING: Mapping[Role, tuple[str, ...]] = {
    Role.VIEWER: ("view_lease", "view_endedlease", "view_cooldown", "view_report"),
    Role.OPERATOR: ("change_lease", "change_cooldown"),
    Role.ADMIN: ("view_apitoken", "add_apitoken", "change_apitoken"),
}


def grant_leasing(*, using: str, **_: object) -> None:
    """Receives leasing's ``post_migrate``."""
    grant("leasing", LEASING, using=using)

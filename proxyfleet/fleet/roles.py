"""The ready-made groups of people: what each may do.

The permissions of an app exist once it is migrated, so each app grants its own from Django's ``post_migrate``. A
permission that was taken from one of these groups comes back with the next migration: whoever wants another set makes
another group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from django.contrib.auth.models import Group, Permission


class Role(StrEnum):
    VIEWER = "viewer"
    """Sees everything that is not secret, and changes nothing."""
    OPERATOR = "operator"
    """Declares, edits and deletes proxies."""
    ADMIN = "admin"
    """Manages people and tokens as well."""


FLEET: Mapping[Role, tuple[str, ...]] = {
    Role.VIEWER: ("view_proxy", "view_proxyevent", "view_providerstate"),
    Role.OPERATOR: ("add_proxy", "change_proxy", "delete_proxy", "change_providerstate"),
}
ACCOUNTS: Mapping[Role, tuple[str, ...]] = {
    Role.ADMIN: tuple(f"{verb}_{what}" for what in ("user", "group") for verb in ("view", "add", "change", "delete")),
}


def grant(app_label: str, permissions: Mapping[Role, Iterable[str]], *, using: str) -> None:
    """Give the roles permissions of one app, by codename. Each role also gets those of the roles before it."""
    codenames: set[str] = set()
    for role in Role:
        codenames.update(permissions.get(role, ()))
        group, _ = Group.objects.using(using).get_or_create(name=role.value)
        group.permissions.add(
            *Permission.objects.using(using).filter(content_type__app_label=app_label, codename__in=codenames)
        )


def grant_fleet(*, using: str, **_: object) -> None:
    """Receives the fleet's ``post_migrate``: the accounts' app, which comes first, is complete by then."""
    grant("fleet", FLEET, using=using)
    grant("auth", ACCOUNTS, using=using)

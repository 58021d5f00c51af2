"""Who reaches which page, who changes what, and that no page shows a secret: for every URL that the admin has."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from leasing.models import ApiToken
from proxyfleet.fleet.roles import Role
from proxyfleet.fleet.tests.world import World
from tests.admin import urls
from tests.admin.filling import CLOUD_INIT_SECRET, PASSWORD_HASH, Filled, fill

EVERYBODY = frozenset(
    {"index", "login", "logout", "jsi18n", "search", "toggle_sidebar", "password_change", "password_change_done"}
)
"""Of the people who may sign in. None of it is about a fleet but the index, which shows what each may see."""

NOWHERE = frozenset({"autocomplete", "view_on_site"})
"""Django's: nothing here uses them, and they answer 403 or 404."""

VIEWER = EVERYBODY | {
    *("app_list", "leasing_target_list", "leasing_target_page", "dashboard:parts", "dashboard:queues"),
    *("fleet_proxy_instance", "fleet_proxy_of_uid", "fleet_providerstate_changelist", "fleet_providerstate_change"),
    *(
        f"{model}_{page}"
        for model in (
            *("fleet_proxy", "fleet_proxyevent"),
            *("leasing_lease", "leasing_endedlease", "leasing_cooldown", "leasing_report"),
        )
        for page in ("changelist", "change", "history")
    ),
}
OPERATOR = VIEWER | {
    *(f"fleet_proxy_{page}" for page in ("add", "edit", "do", "delete")),
    *("fleet_providerstate_check", "fleet_providerstate_dry_run"),
}
ADMIN = OPERATOR | {
    *(f"leasing_apitoken_{page}" for page in ("changelist", "add", "change", "history")),
    *(
        f"auth_{model}_{page}"
        for model in ("user", "group")
        for page in ("changelist", "add", "change", "delete", "history")
    ),
    "auth_user_password_change",
}
REACHED: dict[str, frozenset[str]] = {
    "nobody": frozenset(),
    "staff of no group": EVERYBODY,
    Role.VIEWER: VIEWER,
    Role.OPERATOR: OPERATOR,
    Role.ADMIN: ADMIN,
}

ACTIONS = ("cordon", "delete", "skip-cleanup", "replace", "probe", "release", "lift", "revoke", "delete_selected")


@pytest.fixture
def filled(world: World) -> Filled:
    return fill(world)


def client_of(who: str) -> Client:
    client = Client(SERVER_NAME="localhost")
    if who != "nobody":
        user = User.objects.create_user("wanda", is_staff=True)
        if who in list(Role):
            user.groups.add(Group.objects.get(name=who))
        client.force_login(user)
    return client


def every_url(filled: Filled) -> list[tuple[str, str]]:
    """By name, those that take proxies with one."""
    return [
        (name, f"{url}?ids={filled.proxy.pk}" if name == "fleet_proxy_do" else url)
        for name in sorted(set(urls.names()) - {"logout"})
        for url in urls.url_of(name, filled)
    ]


@pytest.mark.parametrize("who", REACHED)
def test_everyone_reaches_their_pages_and_no_other(filled: Filled, who: str) -> None:
    client, wrong = client_of(who), []
    for name, url in every_url(filled):
        response = client.get(url, follow=True)
        at_the_door = response.redirect_chain and response.redirect_chain[-1][0].startswith("/admin/login/")
        reached = response.status_code == 200 and not at_the_door
        if who == "nobody" and name == "login":
            reached = False
        if reached != (name in REACHED[who] - NOWHERE):
            wrong.append(f"{url} ({name}): {response.status_code}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("who", REACHED)
def test_no_page_shows_a_secret(filled: Filled, who: str) -> None:
    client = client_of(who)
    secrets = (CLOUD_INIT_SECRET, filled.token_secret, filled.token.hash, PASSWORD_HASH.rpartition("$")[2])
    more = [
        ("", f"{reverse('admin:fleet_proxy_changelist')}?q={filled.proxy.name}"),
        ("", f"{reverse('admin:search')}?s=crawl"),
    ]
    for _, url in every_url(filled) + more:
        shown = client.get(url, follow=True).content.decode()
        for secret in secrets:
            assert secret not in shown, url


def test_an_error_shows_no_secret_either(filled: Filled) -> None:
    """The form comes back with what is wrong, and what is declared is not in it."""
    client = client_of(Role.OPERATOR)
    edit = reverse("admin:fleet_proxy_edit", args=[filled.proxy.pk])
    shown = client.post(edit, {"port": "70000", "generation": filled.proxy.generation})
    assert "65535" in shown.content.decode()
    assert CLOUD_INIT_SECRET not in shown.content.decode()


@pytest.mark.parametrize("who", ["nobody", "staff of no group", Role.VIEWER])
def test_who_may_only_look_changes_nothing_by_any_url(filled: Filled, who: str) -> None:
    client = client_of(who)
    before = everything()
    chosen = [obj.pk for obj in (filled.proxy, filled.lease, filled.cooldown, filled.token)]
    for name, url in every_url(filled):
        if name in EVERYBODY - {"index"}:
            continue
        posts: list[dict[str, Any]] = [{"confirmed": "yes", "ids": str(filled.proxy.pk), "name": "x", "post": "yes"}]
        if name.endswith("_changelist"):
            posts += [{"action": action, "_selected_action": chosen, "confirmed": "yes"} for action in ACTIONS]
        for values in posts:
            client.post(url, values)
    assert everything() == before


def everything() -> dict[str, list[dict[str, Any]]]:
    """All rows of all that people could change."""
    return {
        model._meta.label: list(model._default_manager.order_by("pk").values())
        for app in ("fleet", "leasing", "auth", "admin")
        for model in apps.get_app_config(app).get_models()
    }


def test_operators_have_no_way_to_tokens_and_people(filled: Filled) -> None:
    client = client_of(Role.OPERATOR)
    tokens = reverse("admin:leasing_apitoken_changelist")
    client.post(tokens, {"action": "revoke", "_selected_action": [filled.token.pk], "confirmed": "yes"})
    client.post(reverse("admin:auth_user_change", args=[filled.user.pk]), {"username": "vera", "is_superuser": "on"})
    assert ApiToken.objects.get(pk=filled.token.pk).revoked_at is None
    assert not User.objects.get(pk=filled.user.pk).is_superuser


def test_what_a_person_does_is_in_the_log(filled: Filled) -> None:
    client = client_of(Role.ADMIN)
    LogEntry.objects.all().delete()
    for verb in ("probe", "reconcile", "cordon", "uncordon", "replace", "skip-cleanup", "delete"):
        client.post(reverse("admin:fleet_proxy_do", args=[verb]), {"ids": str(filled.proxy.pk), "confirmed": "yes"})
    client.post(reverse("admin:fleet_providerstate_check", args=["mem"]))
    for model, action, what in (
        ("lease", "release", filled.lease),
        ("cooldown", "lift", filled.cooldown),
        ("apitoken", "revoke", filled.token),
    ):
        values = {"action": action, "_selected_action": [what.pk], "confirmed": "yes"}
        client.post(reverse(f"admin:leasing_{model}_changelist"), values)
    client.post(reverse("admin:leasing_apitoken_add"), {"name": "fresh", "scopes": ["read"]})
    told = [entry.get_change_message() for entry in LogEntry.objects.order_by("id")]
    assert told == [
        *("Probe asked for.", "Reconcile asked for.", "Cordoned.", "Uncordoned.", "Replacement asked for."),
        *("Cleanup will be skipped.", "Deletion asked for.", "Check asked for."),
        *("Released.", "Lifted.", "Revoked.", "Added."),
    ]
    assert set(LogEntry.objects.values_list("user__username", flat=True)) == {"wanda"}

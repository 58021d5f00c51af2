"""The dashboard through Django's test client: what it says, to whom, and what it costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from proxyfleet import conf
from proxyfleet.dashboard import tiles
from proxyfleet.dashboard.rollup import roll_up
from proxyfleet.dashboard.tests.day import ENTRIES, add_day, add_fleet
from proxyfleet.fleet import dashboard
from proxyfleet.fleet.models import ClusterMirror, Origin, ProviderState, Proxy
from proxyfleet.fleet.phases import Phase
from proxyfleet.fleet.roles import Role
from proxyfleet.fleet.tests.world import new_world

pytestmark = pytest.mark.django_db

INDEX = reverse("admin:index")
PARTS = reverse("dashboard:parts")
QUEUES = reverse("dashboard:queues")
SignIn = Callable[..., Client]


@pytest.fixture(autouse=True)
def entries(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with new_world(*ENTRIES) as world:
        monkeypatch.setattr("proxyfleet.dashboard.page.providers", lambda: world.providers)
        yield


@pytest.fixture
def sign_in(db: None) -> SignIn:
    def sign_in(role: Role | None, *permissions: str) -> Client:
        user = User.objects.create_user(f"the-{role}", is_staff=True)
        if role is not None:
            user.groups.add(Group.objects.get(name=role))
        user.user_permissions.add(*Permission.objects.filter(codename__in=permissions))
        client = Client(SERVER_NAME="localhost")
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def operator(sign_in: SignIn) -> Client:
    return sign_in(Role.OPERATOR)


def shown(client: Client) -> dict[str, Any]:
    context: dict[str, Any] = client.get(PARTS).context["dashboard"]
    return context


def text(client: Client, url: str = PARTS) -> str:
    """What a person reads."""
    return " ".join(re.sub(r"<[^>]+>", " ", client.get(url).content.decode()).split())


def add(phase: Phase, hours: float = 1, **columns: Any) -> Proxy:
    moment = timezone.now() - timedelta(hours=hours)
    return Proxy.objects.create(
        name=f"p{Proxy.objects.count()}", provider="here", phase=phase, **{"phase_changed_at": moment} | columns
    )


def troubles(client: Client) -> list[tuple[str, str, str]]:
    """What, which, and what helps."""
    return [(item.trouble, item.name, item.action.label if item.action else "") for item in shown(client)["attention"]]


# What it costs


def queries(client: Client) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(PARTS).status_code == 200
    return [query["sql"] for query in captured]


def test_a_large_fleet_takes_as_many_queries_as_a_small_one(operator: Client) -> None:
    now = timezone.now()
    add_day(now)
    add_fleet(now, 10)
    few = queries(operator)
    ProviderState.objects.all().delete()
    Proxy.objects.all().update(namespace="old")
    add_fleet(now, 2000)
    assert Proxy.objects.count() == 2010
    many = queries(operator)
    assert len(many) == len(few), "\n".join(many)
    assert len(many) <= 12, "\n".join(many)


def plan(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"explain {sql}")
        return "\n".join(line for (line,) in cursor.fetchall())


def test_what_is_rare_is_found_by_an_index(operator: Client) -> None:
    now = timezone.now()
    for ago in range(4):
        add_day(now - timedelta(days=ago))
    add_fleet(now, 2000)
    with connection.cursor() as cursor:
        cursor.execute("analyze")
    asked = queries(operator)
    [troubled] = [sql for sql in asked if "ROW_NUMBER" in sql]
    assert "proxy_attention" in plan(troubled), plan(troubled)
    [minutes] = [sql for sql in asked if "dashboard_fleetminute" in sql]
    assert "dashboard_fleetminute_pkey" in plan(minutes), plan(minutes)


# What it says


def test_tiles_lead_to_what_they_count(operator: Client) -> None:
    add_fleet(timezone.now(), 40)
    found = {tile.key: tile for tile in shown(operator)["tiles"]}
    assert (found["proxies"].value, found["healthy"].of) == ("40", "34 of 39 Ready")
    assert found["cooldowns"].value == "13"
    assert found["providers"].value == "3 of 4"
    counted = {part.label: part for part in found["proxies"].parts}
    for label in ("Ready", "Unhealthy", "Failed", "Cordoned"):
        listed = operator.get(counted[label].url)
        assert listed.context["cl"].result_count == counted[label].number, label
    for tile in found.values():
        assert operator.get(tile.url).status_code == 200


def test_a_share_is_never_rounded_up_to_all() -> None:
    census = dashboard.Census({**dict.fromkeys(Phase, 0), Phase.READY: 9999, Phase.FAILED: 1}, 0, {})
    assert tiles.healthy(census).value == "99.9 %"


def test_each_trouble_comes_with_what_helps(operator: Client) -> None:
    now = timezone.now()
    add(Phase.READY)
    failed = add(Phase.FAILED, reason="InvalidRequest", message="no such zone")
    stuck = add(Phase.TERMINATING, deletion_requested_at=now - timedelta(minutes=20), drain_seconds=60)
    unhealthy = add(Phase.UNHEALTHY)
    external = add(Phase.UNHEALTHY, mode="External")
    blocked = add(Phase.PROVISIONING, reason="QuotaExceeded")
    missing = add(Phase.PENDING, reason="CloudInitError")
    # No trouble yet.
    add(Phase.UNHEALTHY, hours=0.1)
    add(Phase.TERMINATING, deletion_requested_at=now - timedelta(minutes=20), drain_seconds=3600)
    add(Phase.PROVISIONING, reason="InstanceProvisioning")
    assert troubles(operator) == [
        ("Failed", str(failed), "Edit the spec"),
        ("Stuck in Terminating", str(stuck), "Skip cleanup"),
        ("Unhealthy", str(unhealthy), "Replace"),
        ("Unhealthy", str(external), "Probe now"),
        ("Blocked", str(blocked), "Try again now"),
        ("Blocked", str(missing), "Try again now"),
    ]
    assert "InvalidRequest: no such zone" in text(operator)


def test_every_action_leads_somewhere(operator: Client) -> None:
    now = timezone.now()
    add_fleet(now, 40)
    items = shown(operator)["attention"]
    assert {item.trouble for item in items} == {
        *("Partly down", "Failed", "Stuck in Terminating", "Unhealthy", "Blocked", "Shared egress IP")
    }
    for item in items:
        assert operator.get(item.url).status_code == 200, item
        if not item.action.post:
            assert operator.get(item.action.url).status_code == 200, item
        else:
            done = operator.post(item.action.url, {"ids": item.action.post, "next": INDEX})
            assert (done.status_code, done.headers["Location"]) == (302, INDEX)


def test_of_many_alike_a_few_are_named_and_the_rest_counted(operator: Client) -> None:
    for _ in range(8):
        add(Phase.FAILED)
    assert [name for _, name, _ in troubles(operator)][-1] == "3 more"
    assert operator.get(shown(operator)["attention"][-1].url).context["cl"].result_count == 8


def test_a_provider_that_is_down_comes_first(operator: Client) -> None:
    add(Phase.FAILED)
    ProviderState.objects.create(entry="here", check_ready=False, check_reason="Unreachable", check_message="no route")
    ProviderState.objects.create(entry="not-configured-any-more", check_ready=False)
    assert [what for what, _, _ in troubles(operator)] == ["Provider down", "Failed"]


def test_who_shares_an_address_is_named(operator: Client) -> None:
    here: dict[str, Any] = {"egress_ip": "198.51.100.7", "instance_serial": 1, "probed_serial": 1}
    first, second = add(Phase.READY, **here), add(Phase.READY, **here)
    # The address of an instance that is no more, and that of a proxy on its way out.
    add(Phase.READY, **here | {"instance_serial": 2})
    add(Phase.TERMINATING, deletion_requested_at=timezone.now(), **here)
    [item] = shown(operator)["attention"]
    assert item.reason == f"Targets see 2 proxies as one: {first}, {second}"
    assert f"ids={second.pk}" in item.action.url


def test_nothing_to_do_is_said(operator: Client) -> None:
    assert "No proxy is declared yet. Declare the first" in text(operator)
    add(Phase.READY)
    assert "All is well: nothing needs you now." in text(operator)


def test_charts_are_drawn_from_the_rollup_and_told_in_words(operator: Client) -> None:
    now = timezone.now()
    assert text(operator).count("Nothing to show yet") == 5
    add(Phase.READY)
    add(Phase.FAILED)
    roll_up(now)
    charts = {chart.key: chart for chart in shown(operator)["charts"]}
    assert charts["healthy"].series[0].now == "50 %"
    assert charts["healthy"].summary.startswith("Ready: 50 % last, lowest 50 % at ")
    assert charts["latency"].is_empty
    assert 'aria-label="Healthy share, %, last 24 hours. Ready: 50 % last' in operator.get(PARTS).content.decode()


# To whom


def test_a_viewer_sees_all_of_it_and_no_button(sign_in: SignIn) -> None:
    viewer = sign_in(Role.VIEWER)
    add_fleet(timezone.now(), 40)
    assert len(shown(viewer)["tiles"]) == 5
    assert [action for what, _, action in troubles(viewer) if what != "Partly down"] == [""] * 6
    assert "Declare" not in text(viewer)
    assert viewer.get(QUEUES).status_code == 200


def test_each_number_is_for_who_may_see_the_list(sign_in: SignIn) -> None:
    someone = sign_in(None, "view_proxy")
    add_fleet(timezone.now(), 10)
    assert [tile.key for tile in shown(someone)["tiles"]] == ["proxies", "healthy"]
    assert [chart.key for chart in shown(someone)["charts"]] == ["healthy", "latency", "changes"]
    assert "pve-lab:" not in "".join(item.name for item in shown(someone)["attention"])
    assert not any(item.trouble == "Partly down" for item in shown(someone)["attention"])


def test_who_may_not_see_proxies_has_a_plain_index(sign_in: SignIn) -> None:
    stranger = sign_in(None, "view_lease")
    index = stranger.get(INDEX)
    assert index.status_code == 200
    assert "fleet-dashboard" not in index.content.decode()
    assert [stranger.get(url).status_code for url in (PARTS, QUEUES)] == [403, 403]


def test_nobody_else_sees_any_of_it() -> None:
    for url in (INDEX, PARTS, QUEUES):
        answer = Client(SERVER_NAME="localhost").get(url)
        assert (answer.status_code, answer.headers["Location"].partition("?")[0]) == (302, reverse("admin:login"))


# What runs


def test_the_schedule_is_late_when_no_minute_is_written(operator: Client) -> None:
    now = timezone.now()
    assert "not seen yet" in text(operator, QUEUES)
    roll_up(now - timedelta(minutes=10))
    assert "Either beat does not run, or no worker does." in text(operator, QUEUES)
    roll_up(now)
    assert re.search(r"Schedule runs Last run \d+ s ago", text(operator, QUEUES))


def test_flower_is_linked_where_it_is_named(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Flower" not in text(operator, QUEUES)
    monkeypatch.setenv("PROXYFLEET_FLOWER_URL", "https://flower.example/")
    conf.settings.cache_clear()
    try:
        assert 'href="https://flower.example/"' in operator.get(QUEUES).content.decode()
    finally:
        monkeypatch.undo()
        conf.settings.cache_clear()


def test_the_bridge_is_shown_where_there_is_one(operator: Client, connected: None) -> None:
    now = timezone.now()
    assert "Bridge never seen" in text(operator)
    add(Phase.READY, origin=Origin.CLUSTER, revision=3, published_revision=2)
    mirror = ClusterMirror.objects.create(leader="bridge-7_abc", led_at=now, complete_at=now)
    assert re.search(r"connected bridge-7 leads.* up to date .*1 to write", text(operator))
    ClusterMirror.objects.filter(pk=mirror.pk).update(complete_at=now - timedelta(minutes=2))
    assert "From the cluster behind" in text(operator)
    ClusterMirror.objects.filter(pk=mirror.pk).update(led_at=now - timedelta(minutes=1))
    assert "not connected None leads" in text(operator)


def test_no_bridge_is_missed_where_none_is_configured(operator: Client) -> None:
    assert "Kubernetes" not in text(operator)

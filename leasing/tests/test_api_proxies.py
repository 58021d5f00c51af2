from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.management import call_command
from django.utils import timezone

from leasing.models import Cooldown
from leasing.tests.api import Api
from leasing.tests.fleet import make_proxy
from proxyfleet.fleet.models import EventKind, Origin, Proxy, ProxyEvent
from proxyfleet.fleet.phases import Phase

LISTS = ("/v1/proxies", "/v1/targets")
EXTERNAL = {"mode": "External", "endpoint": {"host": "203.0.113.9"}, "port": 8080}


def names(api: Api, query: str = "") -> list[str]:
    answer = api.get(f"/v1/proxies?{query}")
    assert answer.status == 200, answer.content
    return [item["id"].split("/")[1] for item in answer.body["items"]]


@pytest.fixture
def fleet(db: None) -> None:
    make_proxy("busy", provider="east", attributes={"geo": "eu"})
    make_proxy("cooling", provider="east", attributes={"geo": "eu", "tier": "a"}, max_leases=5)
    make_proxy("ill", provider="west", phase=Phase.UNHEALTHY)
    make_proxy("other", provider="", mode="External", namespace="team", attributes={"geo": "us"})
    # A verdict on an instance before the one of now counts for nothing.
    make_proxy(
        "stale", provider="west", phase=Phase.PROVISIONING, verdict="healthy", instance_serial=2, probed_serial=1
    )
    cooling = Proxy.objects.get(name="cooling")
    Cooldown.objects.create(proxy=cooling, target="example.com", until=timezone.now() + timedelta(hours=1))
    Cooldown.objects.create(proxy=cooling, target="past.example", until=timezone.now() - timedelta(hours=1))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["busy", "cooling", "ill", "stale", "other"]),
        ("healthy=true", ["busy", "cooling", "other"]),
        ("healthy=false", ["ill", "stale"]),
        ("phase=Unhealthy", ["ill"]),
        ("mode=External", ["other"]),
        ("provider=west", ["ill", "stale"]),
        ("namespace=team", ["other"]),
        ("available=true", ["cooling", "other"]),
        ("available=false", ["busy", "ill", "stale"]),
        ("target=https://EXAMPLE.com/x", ["busy", "ill", "stale", "other"]),
        ("target=past.example&provider=east", ["busy", "cooling"]),
        ("selector=geo%3Deu,tier%20in%20(a,b)", ["cooling"]),
        ("selector=!geo", ["ill", "stale"]),
        ("selector=geo!%3Deu&healthy=true", ["other"]),
    ],
)
def test_every_filter(api: Api, fleet: None, query: str, expected: list[str]) -> None:
    assert api.post("/v1/leases", {"selector": "geo=eu,!tier"}).status == 201
    assert names(api, query) == expected


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("helthy=true", "helthy"),
        ("healthy=perhaps", "healthy"),
        ("phase=ready", "phase"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("selector=geo%3E1", "selector"),
        ("target=a%20b", "target"),
        ("cursor=made-up", "cursor"),
        ("provider=%00", "provider"),
        ("limit=1&limit=2", "limit"),
        ("format=xml", "format"),
    ],
)
def test_a_bad_parameter_is_named(api: Api, query: str, field: str) -> None:
    answer = api.get(f"/v1/proxies?{query}")
    assert (answer.status, answer.code, list(answer.body["errors"])) == (400, "invalid_request", [field])


def test_pages_follow_each_other_while_the_list_changes(api: Api) -> None:
    for name in ("a", "b", "c", "d", "e"):
        make_proxy(name)
    seen = []
    path = "/v1/proxies?limit=2&healthy=true"
    while path:
        page = api.get(path).body
        seen += [item["id"] for item in page["items"]]
        Proxy.objects.filter(name="a").delete()
        path = (page["next"] or "").removeprefix("http://localhost")
    assert seen == ["default/a", "default/b", "default/c", "default/d", "default/e"]


def test_a_cursor_is_good_for_the_list_that_gave_it(api: Api) -> None:
    for name in ("a", "b"):
        make_proxy(name)
        lease = api.post("/v1/leases", {"target": f"{name}.example"}).body
        api.post(f"/v1/leases/{lease['leaseID']}/report", {"result": "ok"})
    cursors = {path: parse_qs(urlsplit(api.get(f"{path}?limit=1").body["next"]).query)["cursor"][0] for path in LISTS}
    for path, cursor in cursors.items():
        for other in LISTS:
            answer = api.get(f"{other}?cursor={cursor}")
            assert answer.status == (200 if path == other else 400)
            assert path == other or list(answer.body["errors"]) == ["cursor"]


def test_one_proxy_is_shown_with_what_happens_around_it(api: Api) -> None:
    now = timezone.now()
    proxy = make_proxy("a", max_leases=3, cloud_init_inline="hush")
    proxy.conditions = [
        {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": now.isoformat()}
    ]
    proxy.save()
    ProxyEvent.objects.create(
        proxy=proxy, proxy_uid=proxy.uid, namespace="default", name="a", at=now, kind=EventKind.DECLARED, actor="ann"
    )
    taken = api.post("/v1/leases", {"client": "x", "target": "example.com"}).body
    Cooldown.objects.create(proxy=proxy, target="other.example", until=now + timedelta(hours=1))
    answer = api.get("/v1/proxies/default/a")
    shown = answer.body
    assert (shown["id"], shown["activeLeases"], shown["maxLeases"]) == ("default/a", 1, 3)
    assert [condition["type"] for condition in shown["conditions"]] == ["Ready"]
    assert [lease["leaseID"] for lease in shown["leases"]] == [taken["leaseID"]]
    assert [cooldown["target"] for cooldown in shown["cooldowns"]] == ["other.example"]
    assert [(event["kind"], event["actor"]) for event in shown["events"]] == [("Declared", "ann")]
    assert b"hush" not in answer.content


def test_of_two_proxies_of_a_name_the_one_that_stays_is_shown(api: Api) -> None:
    make_proxy("a", phase=Phase.TERMINATING, deletion_requested_at=timezone.now())
    assert api.get("/v1/proxies/default/a").body["phase"] == "Terminating"
    make_proxy("a")
    assert api.get("/v1/proxies/default/a").body["phase"] == "Ready"


@pytest.mark.parametrize("name", ["nope", "NOPE", "%00"])
def test_an_unknown_proxy_is_not_found(api: Api, name: str) -> None:
    for answer in (api.get(f"/v1/proxies/default/{name}"), api.delete(f"/v1/proxies/default/{name}")):
        assert (answer.status, answer.code) == (404, "proxy_not_found")


def test_a_proxy_is_declared_changed_and_deleted(api: Api) -> None:
    declared = api.call("PUT", "/v1/proxies/default/ext", EXTERNAL)
    assert (declared.status, declared.body["mode"]) == (201, "External")
    changed = api.call("PUT", "/v1/proxies/default/ext", EXTERNAL | {"attributes": {"geo": "eu"}})
    assert (changed.status, changed.body["attributes"]) == (200, {"geo": "eu"})
    deleted = api.delete("/v1/proxies/default/ext")
    assert deleted.status == 202
    assert Proxy.objects.get().deletion_requested_at is not None
    assert api.delete("/v1/proxies/default/ext").status == 202


def test_a_proxy_of_the_cluster_is_changed_in_the_cluster_alone(api: Api, connected: None) -> None:
    make_proxy("cr", origin=Origin.CLUSTER, generation=4)
    for answer in (api.call("PUT", "/v1/proxies/default/cr", EXTERNAL), api.delete("/v1/proxies/default/cr")):
        assert (answer.status, answer.code) == (409, "not_allowed")
        assert "default/cr is declared in the cluster" in answer.body["detail"]
    assert Proxy.objects.filter(generation=4, deletion_requested_at=None).exists()


def test_without_a_bridge_what_the_cluster_left_says_how_it_can_be_changed(api: Api) -> None:
    make_proxy("cr", origin=Origin.CLUSTER)
    for answer in (api.call("PUT", "/v1/proxies/default/cr", EXTERNAL), api.delete("/v1/proxies/default/cr")):
        assert (answer.status, answer.code) == (409, "not_allowed")
        assert "manage.py leave_cluster" in answer.body["detail"]
    call_command("leave_cluster")
    assert api.delete("/v1/proxies/default/cr").status == 202


def test_a_name_can_be_declared_again_while_its_last_bearer_goes(api: Api) -> None:
    make_proxy("ext", phase=Phase.TERMINATING, deletion_requested_at=timezone.now())
    assert api.call("PUT", "/v1/proxies/default/ext", EXTERNAL).status == 201


@pytest.mark.parametrize(
    ("path", "spec", "field"),
    [
        ("default/a", {"mode": "External"}, "endpoint.host"),
        ("default/a", EXTERNAL | {"maxLeases": 0}, "maxLeases"),
        ("default/a", EXTERNAL | {"surprise": 1}, "surprise"),
        ("default/a", EXTERNAL | {"endpoint": {"host": "169.254.169.254"}}, "endpoint.host"),
        ("default/a", EXTERNAL | {"attributes": {"geo": "\ud800"}}, "attributes"),
        ("default/A", EXTERNAL, "name"),
        ("default/a", [], "body"),
    ],
)
def test_a_bad_spec_is_refused_field_by_field(api: Api, path: str, spec: Any, field: str) -> None:
    answer = api.call("PUT", f"/v1/proxies/{path}", spec)
    assert (answer.status, list(answer.body["errors"])) == (400, [field])

from __future__ import annotations

import base64
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from leasing.ids import uuid7
from leasing.models import Cooldown, EndCause, EndedLease, Lease, ProxyLoad, Report
from leasing.tests.api import Api
from leasing.tests.conftest import RecordingProber
from leasing.tests.fleet import make_proxy
from proxyfleet.conf import settings
from proxyfleet.fleet.models import MirroredSecret, Proxy, SecretUse
from proxyfleet.fleet.phases import Phase
from proxyfleet.fleet.spec import Mode


def lease(api: Api, **body: Any) -> dict[str, Any]:
    answer = api.post("/v1/leases", body)
    assert answer.status == 201, answer.content
    found: dict[str, Any] = answer.body
    return found


def seconds_left(lease: dict[str, Any]) -> float:
    return (datetime.fromisoformat(lease["expiresAt"]) - timezone.now()).total_seconds()


def expire(lease_id: str) -> None:
    Lease.objects.filter(pk=lease_id).update(expires_at=timezone.now() - timedelta(seconds=1))


# Acquire


def test_the_url_has_the_credentials_of_a_proxy_that_needs_some(api: Api) -> None:
    """For who has leased it, and for nobody else."""
    make_proxy(
        "a", mode=Mode.EXTERNAL, provider="", address="2001:db8::7", address_port=8080, credentials_secret_name="login"
    )
    data = {"username": base64.b64encode(b"me@x").decode(), "password": base64.b64encode("p:/ü".encode()).decode()}
    secret = MirroredSecret.objects.create(namespace="default", name="login", use=SecretUse.CREDENTIALS, data=data)
    answer = lease(api)
    url = "http://me%40x:p%3A%2F%C3%BC@[2001:db8::7]:8080"
    assert answer["proxy"]["url"] == url
    assert api.get(f"/v1/leases/{answer['leaseID']}").body["proxy"]["url"] == url
    assert b"p%3A" not in api.get("/v1/proxies").content + api.get("/v1/proxies/default/a").content
    secret.delete()
    assert api.get(f"/v1/leases/{answer['leaseID']}").body["proxy"]["url"] == "http://[2001:db8::7]:8080"


def test_a_lease_says_how_to_use_its_proxy(api: Api) -> None:
    make_proxy("a", attributes={"geo": "eu"}, address="192.0.2.9", address_port=8080, egress_ip="203.0.113.5")
    answer = lease(api, selector="geo=eu", target="https://WWW.Example.com/x", client="crawler-7", ttlSeconds=60)
    assert answer["proxy"] == {
        "id": "default/a",
        "ip": "192.0.2.9",
        "port": 8080,
        "url": "http://192.0.2.9:8080",
        "attributes": {"geo": "eu"},
        "egressIP": "203.0.113.5",
        "phase": "Ready",
        "healthy": True,
    }
    assert answer["target"] == "www.example.com"
    assert 50 < seconds_left(answer) <= 60
    kept = Lease.objects.get(pk=answer["leaseID"])
    assert (kept.client, kept.target, kept.owner) == ("crawler-7", "www.example.com", "")


def test_an_ipv6_address_is_bracketed_in_the_url(api: Api) -> None:
    make_proxy("a", address="2001:db8::1")
    assert lease(api)["proxy"]["url"] == "http://[2001:db8::1]:3128"


def test_a_selector_may_be_a_map(api: Api) -> None:
    make_proxy("us", attributes={"geo": "us"})
    make_proxy("eu", attributes={"geo": "eu"})
    assert lease(api, selector={"geo": "eu"})["proxy"]["id"] == "default/eu"


def test_a_request_without_body_gets_any_proxy_for_the_default_time(api: Api) -> None:
    make_proxy("a")
    answer = api.call("POST", "/v1/leases")
    assert answer.status == 201
    assert settings().default_lease_ttl - 10 < seconds_left(answer.body) <= settings().default_lease_ttl


def test_the_time_to_live_is_capped(api: Api) -> None:
    make_proxy("a")
    assert seconds_left(lease(api, ttlSeconds=10**9)) <= settings().max_lease_ttl


def test_a_count_is_answered_with_a_list_of_distinct_proxies(api: Api) -> None:
    for name in ("a", "b", "c"):
        make_proxy(name, max_leases=2)
    items = lease(api, count=2, exclude=["default/b"])["items"]
    assert {item["proxy"]["id"] for item in items} == {"default/a", "default/c"}
    assert len(lease(api, count=9)["items"]) == 3
    assert len(lease(api, count=1)["items"]) == 1


def test_a_shortage_says_why_and_when_to_come_back(api: Api) -> None:
    make_proxy("full")
    make_proxy("ill", phase=Phase.UNHEALTHY)
    make_proxy("leaving", phase=Phase.TERMINATING)
    cooling = make_proxy("cooling")
    Cooldown.objects.create(proxy=cooling, target="example.com", until=timezone.now() + timedelta(seconds=600))
    lease(api, target="example.com", ttlSeconds=30)
    answer = api.post("/v1/leases", {"target": "example.com"})
    assert (answer.status, answer.code) == (409, "no_proxy_available")
    counts = {name: answer.body[name] for name in ("matching", "full", "unhealthy", "cooling", "draining")}
    assert counts == {"matching": 4, "full": 1, "unhealthy": 1, "cooling": 1, "draining": 1}
    assert 20 < int(answer.headers["Retry-After"]) <= 30


def test_a_shortage_that_time_does_not_end_has_no_retry_after(api: Api) -> None:
    make_proxy("ill", phase=Phase.UNHEALTHY)
    answer = api.post("/v1/leases", {"selector": "geo=eu"})
    assert (answer.code, answer.body["matching"]) == ("no_proxy_available", 0)
    assert "Retry-After" not in answer.headers


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ttl": 5}, "ttl"),
        ({"ttl_seconds": 5}, "ttl_seconds"),
        ({"ttlSeconds": 0}, "ttlSeconds"),
        ({"ttlSeconds": "60"}, "ttlSeconds"),
        ({"ttlSeconds": True}, "ttlSeconds"),
        ({"target": "no host"}, "target"),
        ({"target": 5}, "target"),
        ({"selector": "geo="}, None),
        ({"selector": "geo=eu,"}, "selector"),
        ({"selector": {"geo": 1}}, "selector"),
        ({"selector": {"geo": "\x00"}}, "selector"),
        ({"selector": "x" * 1025}, "selector"),
        ({"count": 0}, "count"),
        ({"count": 101}, "count"),
        ({"client": "a\nb"}, "client"),
        ({"client": "x" * 201}, "client"),
        ({"client": "\ud800"}, "client"),
        ({"exclude": "default/a"}, "exclude"),
        ({"exclude": ["nameonly"]}, "exclude.0"),
        ([], "body"),
        ("text", "body"),
    ],
)
def test_every_bad_field_is_named(api: Api, body: Any, field: str | None) -> None:
    make_proxy("a", attributes={"geo": ""})
    answer = api.post("/v1/leases", body)
    if field is None:
        assert answer.status == 201
    else:
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert list(answer.body["errors"]) == [field]


def test_all_bad_fields_are_named_at_once(api: Api) -> None:
    answer = api.post("/v1/leases", {"count": 0, "ttlSeconds": -1, "more": 1})
    assert set(answer.body["errors"]) == {"count", "ttlSeconds", "more"}


def test_a_bad_selector_says_where(api: Api) -> None:
    (message,) = api.post("/v1/leases", {"selector": "geo in eu"}).body["errors"]["selector"]
    assert message == "character 8: expected '(', found 'eu'"


@pytest.mark.parametrize("body", [b"{", b"[" * 60_000, b'{"ttlSeconds": NaN}', b"\xff"])
def test_what_is_not_json_is_refused(api: Api, body: bytes) -> None:
    answer = api.post("/v1/leases", body)
    assert (answer.status, answer.code) == (400, "invalid_request")


def test_a_body_of_another_type_is_refused(api: Api) -> None:
    answer = api.post("/v1/leases", b"target=example.com", CONTENT_TYPE="application/x-www-form-urlencoded")
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


def test_a_body_of_unknown_length_is_refused_rather_than_taken_for_none(api: Api) -> None:
    answer = api.call("POST", "/v1/leases", HTTP_TRANSFER_ENCODING="chunked")
    assert (answer.status, answer.code) == (411, "length_required")


def test_a_body_that_is_too_large_is_refused(api: Api) -> None:
    answer = api.post("/v1/leases", {"client": "x" * 2**21})
    assert (answer.status, answer.code) == (413, "payload_too_large")


def test_a_parameter_of_the_query_is_refused(api: Api) -> None:
    answer = api.post("/v1/leases?ttlSeconds=5", {})
    assert list(answer.body["errors"]) == ["ttlSeconds"]


# The same request again


def test_a_repeated_request_gets_the_same_lease(api: Api) -> None:
    make_proxy("a", max_leases=5)
    body = {"target": "example.com", "client": "x"}
    first = api.post("/v1/leases", body, HTTP_IDEMPOTENCY_KEY="job-1").body
    again = api.post("/v1/leases", {"client": "x", "target": "example.com"}, HTTP_IDEMPOTENCY_KEY="job-1").body
    assert again == first
    assert api.post("/v1/leases", body, HTTP_IDEMPOTENCY_KEY="job-2").body["leaseID"] != first["leaseID"]
    assert ProxyLoad.objects.get().active == 2


def test_a_repeated_request_gets_the_same_batch(api: Api) -> None:
    for name in ("a", "b", "c"):
        make_proxy(name, max_leases=5)
    first = api.post("/v1/leases", {"count": 3}, HTTP_IDEMPOTENCY_KEY="k").body
    again = api.post("/v1/leases", {"count": 3}, HTTP_IDEMPOTENCY_KEY="k").body
    ids = {item["leaseID"] for item in first["items"]}
    assert ids == {item["leaseID"] for item in again["items"]}
    assert len(ids) == 3


def test_a_key_is_for_one_request(api: Api) -> None:
    make_proxy("a", max_leases=5)
    api.post("/v1/leases", {"client": "x"}, HTTP_IDEMPOTENCY_KEY="k")
    answer = api.post("/v1/leases", {"client": "y"}, HTTP_IDEMPOTENCY_KEY="k")
    assert (answer.status, answer.code) == (422, "idempotency_key_reused")


def test_a_request_that_got_nothing_can_be_repeated(api: Api) -> None:
    assert api.post("/v1/leases", {}, HTTP_IDEMPOTENCY_KEY="k").status == 409
    make_proxy("a")
    assert api.post("/v1/leases", {}, HTTP_IDEMPOTENCY_KEY="k").status == 201


def test_a_repeated_request_whose_lease_is_over_is_told_so(api: Api) -> None:
    make_proxy("a")
    first = api.post("/v1/leases", {}, HTTP_IDEMPOTENCY_KEY="k").body
    api.delete(f"/v1/leases/{first['leaseID']}")
    answer = api.post("/v1/leases", {}, HTTP_IDEMPOTENCY_KEY="k")
    assert (answer.status, answer.code) == (410, "lease_ended")


@pytest.mark.parametrize("key", ["", "with space", "ä", "x" * 256])
def test_a_bad_key_is_refused(api: Api, key: str) -> None:
    answer = api.post("/v1/leases", {}, HTTP_IDEMPOTENCY_KEY=key)
    assert list(answer.body["errors"]) == ["Idempotency-Key"]


# Read, renew, release


def test_a_lease_shows_that_its_proxy_became_unhealthy(api: Api) -> None:
    make_proxy("a")
    taken = lease(api)
    Proxy.objects.update(phase=Phase.UNHEALTHY, verdict="unhealthy")
    proxy = api.get(f"/v1/leases/{taken['leaseID']}").body["proxy"]
    assert (proxy["phase"], proxy["healthy"]) == ("Unhealthy", False)


def test_renewal_counts_from_now(api: Api) -> None:
    make_proxy("a")
    taken = lease(api, ttlSeconds=30)
    renewed = api.post(f"/v1/leases/{taken['leaseID']}/renew", {"ttlSeconds": 100})
    assert 90 < seconds_left(renewed.body) <= 100
    assert seconds_left(api.post(f"/v1/leases/{taken['leaseID']}/renew").body) > 100
    assert list(api.post(f"/v1/leases/{taken['leaseID']}/renew", {"ttl": 1}).body["errors"]) == ["ttl"]


def test_a_lease_is_released_once_and_for_all(api: Api) -> None:
    make_proxy("a")
    path = f"/v1/leases/{lease(api)['leaseID']}"
    assert api.delete(path).status == 204
    assert api.delete(path).status == 204
    answer = api.get(path)
    assert (answer.status, answer.code, answer.body["cause"]) == (410, "lease_ended", "released")
    assert lease(api)["proxy"]["id"] == "default/a"


@pytest.mark.parametrize("is_swept", [False, True])
def test_a_lease_whose_time_is_over_has_ended_whether_or_not_it_was_swept(api: Api, is_swept: bool) -> None:
    from leasing.operations import expire as sweep

    make_proxy("a")
    taken = lease(api)["leaseID"]
    expire(taken)
    if is_swept:
        sweep(timezone.now())
    for answer in (
        api.get(f"/v1/leases/{taken}"),
        api.post(f"/v1/leases/{taken}/renew", {}),
        api.post(f"/v1/leases/{taken}/report", {"result": "ok"}),
    ):
        assert (answer.status, answer.code, answer.body["cause"]) == (410, "lease_ended", "expired")
    assert api.delete(f"/v1/leases/{taken}").status == 204


@pytest.mark.parametrize("lease_id", ["018f4e5c-0000-7000-8000-000000000000", "nonsense"])
def test_an_unknown_lease_is_not_found(api: Api, lease_id: str) -> None:
    for answer in (
        api.get(f"/v1/leases/{lease_id}"),
        api.delete(f"/v1/leases/{lease_id}"),
        api.post(f"/v1/leases/{lease_id}/renew", {}),
        api.post(f"/v1/leases/{lease_id}/report", {"result": "ok"}),
    ):
        assert (answer.status, answer.code) == (404, "lease_not_found")


def test_how_a_lease_ended_is_kept(api: Api) -> None:
    now = timezone.now()
    ended = EndedLease.objects.create(
        id=uuid7(now),
        proxy_uid=uuid.uuid4(),
        namespace="default",
        name="a",
        created_at=now,
        ended_at=now,
        cause=EndCause.INSTANCE_LOST,
    )
    assert api.get(f"/v1/leases/{ended.pk}").body["cause"] == "instance_lost"


# Report


@pytest.mark.parametrize("result", ["rate_limited", "blocked"])
def test_a_refusal_rests_the_proxy_for_that_target_only(api: Api, prober: RecordingProber, result: str) -> None:
    make_proxy("a", max_leases=5)
    taken = lease(api, target="example.com")["leaseID"]
    answer = api.post(f"/v1/leases/{taken}/report", {"result": result})
    rest = datetime.fromisoformat(answer.body["cooldownUntil"]) - timezone.now()
    assert settings().lease_cooldown - 10 < rest.total_seconds() <= settings().lease_cooldown
    assert api.post("/v1/leases", {"target": "example.com"}).body["cooling"] == 1
    assert lease(api, target="other.example")["proxy"]["id"] == "default/a"
    assert prober.asked == []


def test_a_report_may_name_target_and_time_and_never_shortens_a_cooldown(api: Api) -> None:
    make_proxy("a", max_leases=5)
    path = f"/v1/leases/{lease(api)['leaseID']}/report"
    body = {"result": "blocked", "target": "https://Example.com/", "cooldownSeconds": 600}
    until = api.post(path, body).body["cooldownUntil"]
    assert api.post(path, body | {"cooldownSeconds": 1}).body["cooldownUntil"] == until
    assert Cooldown.objects.get().target == "example.com"


def test_a_refusal_without_a_target_is_refused(api: Api) -> None:
    make_proxy("a")
    answer = api.post(f"/v1/leases/{lease(api)['leaseID']}/report", {"result": "blocked"})
    assert list(answer.body["errors"]) == ["target"]
    assert not Report.objects.exists()


@pytest.mark.parametrize("result", ["timeout", "error"])
def test_a_failure_has_the_proxy_probed(api: Api, prober: RecordingProber, result: str) -> None:
    proxy = make_proxy("a")
    answer = api.post(f"/v1/leases/{lease(api)['leaseID']}/report", {"result": result})
    assert answer.body == {"cooldownUntil": None}
    assert prober.asked == [proxy.pk]
    assert not Cooldown.objects.exists()


def test_success_is_only_noted(api: Api, prober: RecordingProber) -> None:
    make_proxy("a")
    taken = lease(api, target="example.com")["leaseID"]
    assert api.post(f"/v1/leases/{taken}/report", {"result": "ok"}).status == 200
    note = Report.objects.get()
    assert (str(note.lease_id), note.name, note.target, note.result) == (taken, "a", "example.com", "ok")
    assert prober.asked == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "result"),
        ({"result": "fine"}, "result"),
        ({"result": "ok", "cooldownSeconds": 0}, "cooldownSeconds"),
        ({"result": "ok", "target": ""}, "target"),
        ({"result": "ok", "why": "x"}, "why"),
    ],
)
def test_a_bad_report_is_refused(api: Api, body: dict[str, Any], field: str) -> None:
    make_proxy("a")
    answer = api.post(f"/v1/leases/{lease(api)['leaseID']}/report", body)
    assert (answer.status, list(answer.body["errors"])) == (400, [field])

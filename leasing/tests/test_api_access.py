from __future__ import annotations

import io
import logging
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from leasing import access
from leasing.api.rates import Rates
from leasing.models import ApiToken, Report
from leasing.tests.api import Api
from leasing.tests.fleet import make_proxy
from leasing.tokens import ALL_SCOPES, Scope, hash_token
from proxyfleet.fleet.models import Proxy

pytestmark = pytest.mark.django_db


def make_token(name: str, *scopes: Scope) -> str:
    return access.create_token(name, scopes, created_by="ann", now=timezone.now()).secret


CALLS = [
    ("GET", "/v1/proxies", Scope.READ),
    ("HEAD", "/v1/proxies", Scope.READ),
    ("GET", "/v1/proxies/default/a", Scope.READ),
    ("GET", "/v1/targets", Scope.READ),
    ("POST", "/v1/leases", Scope.LEASE),
    ("GET", "/v1/leases/x", Scope.LEASE),
    ("DELETE", "/v1/leases/x", Scope.LEASE),
    ("POST", "/v1/leases/x/renew", Scope.LEASE),
    ("POST", "/v1/leases/x/report", Scope.LEASE),
    ("PUT", "/v1/proxies/default/a", Scope.OPERATE),
    ("DELETE", "/v1/proxies/default/a", Scope.OPERATE),
]


@pytest.mark.parametrize(("method", "path", "scope"), CALLS)
def test_every_call_needs_a_token_of_its_scope(api: Api, method: str, path: str, scope: Scope) -> None:
    right = Api(make_token("right", scope))
    wrong = Api(make_token("wrong", *(ALL_SCOPES - {scope})))
    assert right.call(method, path).status not in (401, 403)
    assert wrong.call(method, path).status == 403
    refused = api.call(method, path)
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="proxyfleet"'


def test_the_problems_of_access_have_codes(api: Api) -> None:
    token = make_token("reader", Scope.READ)
    assert api.get("/v1/proxies").code == "unauthenticated"
    forbidden = Api(token).post("/v1/leases", {})
    assert (forbidden.code, forbidden.body["detail"]) == ("forbidden", "The token lacks the scope 'lease'.")


@pytest.mark.parametrize("path", ["/v1/whoami", "/v1/schema", "/v1/docs"])
def test_some_answers_are_for_everyone(api: Api, path: str) -> None:
    make_token("any", Scope.READ)
    assert api.get(path).status == 200
    assert Api("wrong").get(path).status == 200


def test_without_any_token_ever_made_the_api_is_open_and_says_so(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    assert api.get("/v1/proxies").status == 200
    access.prepare_access(None, now=timezone.now())
    (record,) = caplog.records
    assert (record.levelno, "THE API IS OPEN" in record.message) == (logging.WARNING, True)


def test_a_token_that_is_no_longer_good_keeps_the_api_closed(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    secret = make_token("old", Scope.READ)
    access.revoke_token(ApiToken.objects.get().pk, now=timezone.now())
    assert api.get("/v1/proxies").status == 401
    assert Api(secret).get("/v1/proxies").status == 401
    access.prepare_access(None, now=timezone.now())
    assert not [record for record in caplog.records if "OPEN" in record.message]


def test_a_token_expires(api: Api) -> None:
    now = timezone.now()
    new = access.create_token("brief", [Scope.READ], created_by="ann", now=now, expires_at=now + timedelta(minutes=1))
    assert Api(new.secret).get("/v1/proxies").status == 200
    ApiToken.objects.update(expires_at=now)
    assert Api(new.secret).get("/v1/proxies").status == 401


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer a b", "Bearer wrong", "Bearer ÿ"])
def test_a_bad_header_is_refused(api: Api, header: str) -> None:
    make_token("any", Scope.READ)
    assert api.call("GET", "/v1/proxies", HTTP_AUTHORIZATION=header).status == 401


def test_use_is_noted_at_most_once_a_minute() -> None:
    secret = make_token("busy", Scope.READ)
    start = timezone.now()
    noted = []
    for seconds in (0, 30, 59, 61, 62):
        access.find_token(secret, start + timedelta(seconds=seconds))
        noted.append((ApiToken.objects.get().last_used_at or start) - start)
    assert [gap.total_seconds() for gap in noted] == [0, 0, 0, 61, 61]


def test_leases_and_events_name_the_token(api: Api) -> None:
    make_proxy("a")
    caller = Api(make_token("crawler 1", *ALL_SCOPES))
    caller.post("/v1/leases", {})
    assert [lease["owner"] for lease in caller.get("/v1/proxies/default/a").body["leases"]] == ["crawler 1"]
    caller.delete("/v1/proxies/default/a")
    assert Proxy.objects.get().events.get().actor == "crawler 1"


def test_a_key_of_one_token_is_not_that_of_another(api: Api) -> None:
    make_proxy("a", max_leases=5)
    ids = {
        Api(make_token(name, Scope.LEASE)).post("/v1/leases", {}, HTTP_IDEMPOTENCY_KEY="k").body["leaseID"]
        for name in ("one", "two")
    }
    assert len(ids) == 2


def test_only_the_hash_of_a_token_is_kept_and_nothing_tells_it_again(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    make_proxy("a")
    secret = make_token("quiet", *ALL_SCOPES)
    caller = Api(secret)
    contents = [
        caller.get("/v1/proxies").content,
        caller.get("/v1/nowhere").content,
        caller.get(f"/v1/proxies?{secret[:0]}nope=1").content,
        caller.get("/v1/whoami").content,
        caller.post("/v1/leases", {"nope": 1}).content,
        caller.post("/v1/leases", b"{").content,
        Api(secret + "x").get("/v1/proxies").content,
    ]
    assert all(secret.encode() not in content for content in contents)
    assert secret not in caplog.text
    token = ApiToken.objects.get()
    assert token.hash == hash_token(secret)
    assert secret not in repr(access.create_token("other", [Scope.READ], created_by="ann", now=timezone.now()))
    assert secret not in str(ApiToken.objects.filter(pk=token.pk).values())


def test_no_page_of_the_admin_shows_a_token(api: Api, admin_client: Client) -> None:
    secret = make_token("quiet", *ALL_SCOPES)
    assert Api(secret).get("/v1/proxies").status == 200
    token = ApiToken.objects.get()
    for page in ("admin:leasing_apitoken_changelist", "admin:index"):
        assert secret.encode() not in admin_client.get(reverse(page)).content
    assert secret.encode() not in admin_client.get(reverse("admin:leasing_apitoken_change", args=[token.pk])).content


def test_a_token_that_is_remembered_is_refused_within_seconds_of_its_revocation() -> None:
    secret, now = make_token("brief", Scope.READ), timezone.now()
    tokens = access.KnownTokens()
    assert tokens.find(secret, now) is not None
    access.revoke_token(ApiToken.objects.get().pk, now=now)
    assert tokens.find(secret, now + access.REMEMBERED / 2) is not None
    assert tokens.find(secret, now + access.REMEMBERED) is None
    assert tokens.find(secret, now) is None


def test_a_token_that_is_remembered_expires_on_time() -> None:
    now = timezone.now()
    soon = now + access.REMEMBERED / 2
    new = access.create_token("brief", [Scope.READ], created_by="ann", now=now, expires_at=soon)
    tokens = access.KnownTokens()
    assert tokens.find(new.secret, now) is not None
    assert tokens.find(new.secret, soon) is None


def test_a_token_that_asks_too_often_is_told_when_to_come_back(api: Api) -> None:
    now = timezone.now()
    slow = Api(access.create_token("slow", [Scope.READ], created_by="ann", now=now, requests_per_second=1).secret)
    answers = [slow.get("/v1/targets") for _ in range(20)]
    assert answers[0].status == 200
    refused = answers[-1]
    assert (refused.status, refused.code, refused.headers["Retry-After"]) == (429, "too_many_requests", "1")
    assert Api(make_token("other", Scope.READ)).get("/v1/targets").status == 200


def test_a_rate_lets_through_what_it_says() -> None:
    start, rates = timezone.now(), Rates()
    passed = [
        rates.spend("t", 10, start + timedelta(milliseconds=10 * step)) == 0
        for step in range(300)  # 100 a second, for 3 seconds
    ]
    assert sum(passed) == 10 + 3 * 10 - 1


def test_the_token_of_the_settings_is_seeded_once() -> None:
    now = timezone.now()
    access.seed_token("first-secret", now=now)
    access.seed_token("first-secret", now=now)
    token = ApiToken.objects.get()
    assert (token.name, set(token.scopes), token.prefix) == ("discovery-token", set(ALL_SCOPES), "")
    access.revoke_token(token.pk, now=now)
    access.seed_token("first-secret", now=now)
    assert access.find_token("first-secret", now) is None
    access.seed_token("second-secret", now=now)
    assert access.find_token("first-secret", now) is None
    assert access.find_token("second-secret", now) == token


def test_the_command_prints_a_token_that_works(api: Api) -> None:
    output = io.StringIO()
    call_command("create_token", "shell", "--scope", "read", "--expires-days", "1", stdout=output)
    assert Api(output.getvalue().strip()).get("/v1/proxies").status == 200
    with pytest.raises(CommandError, match="already exists"):
        call_command("create_token", "shell", "--scope", "read")


def test_whoami_shows_the_address_of_the_connection_and_what_was_forwarded(api: Api) -> None:
    answer = api.call("GET", "/v1/whoami", REMOTE_ADDR="203.0.113.7", HTTP_X_FORWARDED_FOR="10.0.0.1", HTTP_VIA="1.1 x")
    assert answer.body == {"ip": "203.0.113.7", "headers": {"X-Forwarded-For": "10.0.0.1", "Via": "1.1 x"}}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nowhere", 404, "not_found"),
        ("GET", "/v1/", 404, "not_found"),
        ("PATCH", "/v1/leases", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/leases", 405, "method_not_allowed"),
        ("GET", "/v1/leases", 405, "method_not_allowed"),
    ],
)
def test_what_is_not_there_is_a_problem_too(api: Api, method: str, path: str, status: int, code: str) -> None:
    answer = api.call(method, path)
    assert (answer.status, answer.code) == (status, code)


def test_the_docs_come_from_this_server_alone(api: Api) -> None:
    page = api.get("/v1/docs").content.decode()
    assert "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js" in page
    assert "//cdn" not in page


def test_the_document_is_openapi_3_1_and_asks_for_bearer_tokens(api: Api) -> None:
    assert api.document["openapi"].startswith("3.1")
    assert api.document["paths"]["/v1/leases"]["post"]["security"] == [{"token": []}]
    assert "security" not in api.document["paths"]["/v1/whoami"]["get"]


def test_targets_tell_who_blocks_whom(api: Api) -> None:
    proxy = make_proxy("a", max_leases=9)
    lease = api.post("/v1/leases", {"target": "b.example"}).body["leaseID"]
    for result in ("ok", "ok", "ok", "blocked"):
        api.post(f"/v1/leases/{lease}/report", {"result": result})
    api.post(f"/v1/leases/{lease}/report", {"result": "ok", "target": "a.example"})
    api.post(f"/v1/leases/{lease}/report", {"result": "blocked", "target": "c.example"})
    Report.objects.filter(target="c.example").update(at=timezone.now() - timedelta(hours=2))
    assert api.get("/v1/targets").body == {
        "items": [
            {"target": "a.example", "cooling": 0, "reports": 1, "successRate": 1.0},
            {"target": "b.example", "cooling": 1, "reports": 4, "successRate": 0.75},
            {"target": "c.example", "cooling": 1, "reports": 0, "successRate": None},
        ],
        "next": None,
    }
    first = api.get("/v1/targets?limit=2").body
    second = api.get(first["next"].removeprefix("http://localhost")).body
    assert [item["target"] for item in first["items"] + second["items"]] == ["a.example", "b.example", "c.example"]
    assert list(api.get("/v1/targets?healthy=true").body["errors"]) == ["healthy"]
    assert proxy.cooldowns.count() == 2

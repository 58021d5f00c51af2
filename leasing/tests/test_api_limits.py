"""Every limit that is documented: what just fits is accepted, what is one too many is refused, and named."""

from __future__ import annotations

from typing import Any

import pytest

from leasing.api.base import MAX_BODY_BYTES
from leasing.api.requests import LARGEST_PAGE, MAX_COOLDOWN_SECONDS, MAX_COUNT, MAX_EXCLUDED
from leasing.models import CLIENT_LENGTH
from leasing.selectors import MAX_LENGTH as MAX_SELECTOR
from leasing.targets import MAX_LENGTH as MAX_TARGET
from leasing.tests.api import Answer, Api
from leasing.tests.fleet import make_proxy
from proxyfleet.fleet.spec import MAX_ATTRIBUTES, MAX_CLOUD_INIT_BYTES

HOST = ".".join(["a" * 63, "a" * 63, "a" * 63, "a" * 61])
assert len(HOST) == 253


def refused_for(answer: Answer, field: str) -> bool:
    return (answer.status, answer.code, list(answer.body["errors"])) == (400, "invalid_request", [field])


def selector(length: int) -> str:
    return "!" + "x" * (length - 1)


@pytest.mark.parametrize(
    ("fits", "too_much", "field"),
    [
        ({"selector": selector(MAX_SELECTOR)}, {"selector": selector(MAX_SELECTOR + 1)}, "selector"),
        ({"selector": {"a": "x" * (MAX_SELECTOR - 1)}}, {"selector": {"a": "x" * MAX_SELECTOR}}, "selector"),
        ({"count": MAX_COUNT}, {"count": MAX_COUNT + 1}, "count"),
        ({"count": 1}, {"count": 0}, "count"),
        ({"ttlSeconds": 1}, {"ttlSeconds": 0}, "ttlSeconds"),
        ({"ttlSeconds": 1.0}, {"ttlSeconds": 0.5}, "ttlSeconds"),
        ({"client": "x" * CLIENT_LENGTH}, {"client": "x" * (CLIENT_LENGTH + 1)}, "client"),
        ({"exclude": ["default/b"] * MAX_EXCLUDED}, {"exclude": ["default/b"] * (MAX_EXCLUDED + 1)}, "exclude"),
        ({"exclude": [f"{'n' * 63}/{'p' * 253}"]}, {"exclude": [f"{'n' * 63}/{'p' * 254}"]}, "exclude.0"),
        ({"target": HOST}, {"target": HOST + "a"}, "target"),
        (
            {"target": "http://a.example/".ljust(MAX_TARGET, "x")},
            {"target": "http://a.example/".ljust(MAX_TARGET + 1, "x")},
            "target",
        ),
    ],
)
def test_a_request_for_a_lease(api: Api, fits: dict[str, Any], too_much: dict[str, Any], field: str) -> None:
    make_proxy("a")
    assert api.post("/v1/leases", fits).status in (201, 409)
    assert refused_for(api.post("/v1/leases", too_much), field)


@pytest.mark.parametrize(("length", "fits"), [(1, True), (255, True), (256, False)])
def test_an_idempotency_key(api: Api, length: int, fits: bool) -> None:
    make_proxy("a")
    answer = api.post("/v1/leases", {}, HTTP_IDEMPOTENCY_KEY="k" * length)
    assert answer.status == 201 if fits else refused_for(answer, "Idempotency-Key")


@pytest.mark.parametrize(("size", "status"), [(MAX_BODY_BYTES, 201), (MAX_BODY_BYTES + 1, 413)])
def test_a_body(api: Api, size: int, status: int) -> None:
    make_proxy("a")
    assert api.post("/v1/leases", b"{" + b" " * (size - 2) + b"}").status == status


def test_a_cooldown(api: Api) -> None:
    make_proxy("a")
    path = f"/v1/leases/{api.post('/v1/leases', {'target': 'a.example'}).body['leaseID']}/report"
    said = {"result": "blocked", "cooldownSeconds": MAX_COOLDOWN_SECONDS}
    assert api.post(path, said).status == 200
    assert refused_for(api.post(path, said | {"cooldownSeconds": MAX_COOLDOWN_SECONDS + 1}), "cooldownSeconds")


@pytest.mark.parametrize(
    ("fits", "too_much", "field"),
    [
        (f"limit={LARGEST_PAGE}", f"limit={LARGEST_PAGE + 1}", "limit"),
        ("limit=1", "limit=0", "limit"),
        ("provider=" + "p" * 63, "provider=" + "p" * 64, "provider"),
        ("namespace=" + "n" * 63, "namespace=" + "n" * 64, "namespace"),
        ("selector=" + selector(MAX_SELECTOR), "selector=" + selector(MAX_SELECTOR + 1), "selector"),
        ("target=" + HOST, "target=" + HOST + "a", "target"),
    ],
)
def test_a_parameter_of_the_list(api: Api, fits: str, too_much: str, field: str) -> None:
    assert api.get(f"/v1/proxies?{fits}").status == 200
    assert refused_for(api.get(f"/v1/proxies?{too_much}"), field)


EXTERNAL = {"mode": "External", "endpoint": {"host": "192.0.2.1"}}
MANAGED = {"mode": "Managed", "provider": "east"}


@pytest.mark.parametrize(
    ("fits", "too_much", "field"),
    [
        (
            EXTERNAL | {"attributes": {f"a{number}": "" for number in range(MAX_ATTRIBUTES)}},
            EXTERNAL | {"attributes": {f"a{number}": "" for number in range(MAX_ATTRIBUTES + 1)}},
            "attributes",
        ),
        (EXTERNAL | {"attributes": {"a" * 63: ""}}, EXTERNAL | {"attributes": {"a" * 64: ""}}, "attributes"),
        (EXTERNAL | {"attributes": {"a": "x" * 63}}, EXTERNAL | {"attributes": {"a": "x" * 64}}, "attributes"),
        (EXTERNAL | {"maxLeases": 1_000_000}, EXTERNAL | {"maxLeases": 1_000_001}, "maxLeases"),
        (EXTERNAL | {"port": 65_535}, EXTERNAL | {"port": 65_536}, "port"),
        (EXTERNAL | {"drainSeconds": 604_800}, EXTERNAL | {"drainSeconds": 604_801}, "drainSeconds"),
        (
            MANAGED | {"cloudInit": {"inline": "\x01" * MAX_CLOUD_INIT_BYTES}},
            MANAGED | {"cloudInit": {"inline": "x" * (MAX_CLOUD_INIT_BYTES + 1)}},
            "cloudInit.inline",
        ),
    ],
)
def test_a_declaration(api: Api, fits: dict[str, Any], too_much: dict[str, Any], field: str) -> None:
    assert api.call("PUT", "/v1/proxies/default/fits", fits).status == 201
    assert refused_for(api.call("PUT", "/v1/proxies/default/not", too_much), field)


@pytest.mark.parametrize(("name", "status"), [(HOST, 201), (HOST + "a", 400)])
def test_the_name_of_a_proxy(api: Api, name: str, status: int) -> None:
    assert api.call("PUT", f"/v1/proxies/default/{name}", EXTERNAL).status == status

"""What a schema can't describe, made up to be right: each such request is accepted."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.provisional import domains, urls

from leasing.tests.api import Api
from leasing.tests.fleet import make_proxy
from leasing.tests.test_selectors import ATTRIBUTES, SELECTORS
from proxyfleet.fleet.models import Proxy

pytestmark = pytest.mark.django_db

TARGETS = st.one_of(domains(), urls(), st.ip_addresses().map(str), domains().map("https://{}:8443/a?b=c".format))
TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=200)
COUNTS = st.integers(1, 100)
SECONDS = st.one_of(st.integers(min_value=1, max_value=10**12), st.integers(1, 2**53).map(float))
WISHES = st.fixed_dictionaries(
    {},
    optional={
        "selector": st.one_of(SELECTORS, ATTRIBUTES),
        "target": TARGETS,
        "ttlSeconds": SECONDS,
        "count": st.one_of(COUNTS, COUNTS.map(float)),
        "client": TEXTS,
        "exclude": st.lists(st.from_regex(r"[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}", fullmatch=True), max_size=5),
    },
)
KEYS = st.one_of(st.none(), st.uuids().map(str), st.from_regex(r"[!-~]{1,255}", fullmatch=True).map("k".__add__))
REFUSALS = st.sampled_from(["rate_limited", "blocked"])
REPORTS = st.one_of(
    st.fixed_dictionaries({"result": REFUSALS, "target": TARGETS}, optional={"cooldownSeconds": st.integers(1, 10**6)}),
    st.fixed_dictionaries({"result": st.sampled_from(["ok", "timeout", "error"])}, optional={"target": TARGETS}),
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "selector": SELECTORS,
        "target": TARGETS,
        "healthy": st.sampled_from(["true", "false"]),
        "available": st.sampled_from(["true", "false"]),
        "phase": st.sampled_from(["Ready", "Failed"]),
        "provider": st.just("east"),
        "namespace": st.just("default"),
        "limit": st.integers(1, 500),
    },
)
accepted = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


@accepted
@given(WISHES, KEYS)
def test_a_wish_for_a_lease(api: Api, wish: dict[str, Any], key: str | None) -> None:
    make_some()
    headers = {} if key is None else {"HTTP_IDEMPOTENCY_KEY": key[:255]}
    answer = api.post("/v1/leases", wish, **headers)
    assert answer.status in (201, 409, 422), answer.content
    assert answer.status != 422 or key is not None


@accepted
@given(REPORTS)
def test_a_report(api: Api, said: dict[str, Any]) -> None:
    make_some()
    lease = api.post("/v1/leases", {}).body["leaseID"]
    assert api.post(f"/v1/leases/{lease}/report", said).status == 200
    assert api.delete(f"/v1/leases/{lease}").status == 204


@accepted
@given(FILTERS)
def test_filters_of_the_list(api: Api, filters: dict[str, Any]) -> None:
    make_some()
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in filters.items())
    answer = api.get(f"/v1/proxies?{query}")
    assert answer.status == 200, answer.content
    if answer.body["next"]:
        assert api.get(answer.body["next"].removeprefix("http://localhost")).status == 200


def make_some() -> None:
    """Once for all examples of a test, which share a transaction."""
    if not Proxy.objects.exists():
        for number in range(3):
            make_proxy(f"p{number}", max_leases=1_000_000, attributes={"geo": "eu"})

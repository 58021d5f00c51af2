"""What a crawler may rely on of the client, whatever the API and the network do. Both fleets, one list of promises."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from proxyfleet_client import AsyncFleet, AsyncLease, Fleet, Lease, NoProxyAvailable, Refused, Unreachable
from tests.client.scripted_api import ENDED, LEASE, Script, scripted_api

ACQUIRE, RENEW, REPORT, RELEASE = (
    "POST leases",
    "POST leases/018f-lease/renew",
    "POST leases/018f-lease/report",
    "DELETE leases/018f-lease",
)
SHORT_LEASE = {**LEASE, "expiresAt": "2026-01-01T12:00:01Z"}
NONE = {"status": 409, "code": "no_proxy_available", "detail": "None is free.", "matching": 2, "full": 2}

Use = Callable[[Lease | AsyncLease], object]
Crawl = Callable[..., None]


@pytest.fixture
def api() -> Iterator[Script]:
    with scripted_api() as script:
        yield script


def _in_threads(url: str, use: Use, *, patience: float = 30, **options: Any) -> None:
    with Fleet(url, "secret", patience=patience) as fleet, fleet.lease(**options) as lease:
        use(lease)


def _in_asyncio(url: str, use: Use, *, patience: float = 30, **options: Any) -> None:
    async def crawl() -> None:
        async with AsyncFleet(url, "secret", patience=patience) as fleet, fleet.lease(**options) as lease:
            await asyncio.to_thread(use, lease)

    asyncio.run(crawl())


@pytest.fixture(params=[_in_threads, _in_asyncio], ids=["threads", "asyncio"])
def crawl(request: pytest.FixtureRequest) -> Crawl:
    crawl: Crawl = request.param
    return crawl


def nothing(_lease: Lease | AsyncLease) -> None:
    """Uses the lease for nothing."""


def test_what_is_asked_for_reaches_the_api(api: Script, crawl: Crawl) -> None:
    def use(lease: Lease | AsyncLease) -> None:
        assert lease.url == "http://192.0.2.1:3128"
        assert lease.grant.proxy.attributes == {"geo": "eu"}

    crawl(api.url, use, geo="eu", target="example.com", ttl=120, client="me", exclude=["default/b"])
    assert api.calls() == [ACQUIRE, RELEASE]
    assert api.asked[0].body == {
        "selector": {"geo": "eu"},
        "target": "example.com",
        "ttlSeconds": 120,
        "client": "me",
        "exclude": ["default/b"],
    }
    assert {asked.headers["Authorization"] for asked in api.asked} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("statuses", "reported"),
    [([200, 404, 500], "ok"), ([200, 429, 200], "rate_limited"), ([403], "rate_limited"), ([407], "error")],
)
def test_the_worst_that_was_observed_is_reported_once(
    api: Script, crawl: Crawl, statuses: list[int], reported: str
) -> None:
    crawl(api.url, lambda lease: [lease.observe_status(status) for status in statuses])
    assert api.calls() == [ACQUIRE, REPORT, RELEASE]
    assert api.asked[1].body == {"result": reported}


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (TimeoutError("slow"), ["timeout"]),
        (httpx.ReadTimeout("slow"), ["timeout"]),
        (httpx.ProxyError("refused"), ["error"]),
        (ConnectionResetError("gone"), ["error"]),
        (KeyError("the crawler's own"), []),
    ],
)
def test_an_exception_that_leaves_the_block_is_reported_if_the_proxy_is_to_blame(
    api: Script, crawl: Crawl, error: Exception, reported: list[str]
) -> None:
    def use(_lease: Lease | AsyncLease) -> None:
        raise error

    with pytest.raises(type(error)):
        crawl(api.url, use)
    assert [asked.body["result"] for asked in api.asked if asked.path.endswith("report")] == reported
    assert api.calls()[-1] == RELEASE


def test_a_lease_is_renewed_for_as_long_as_it_is_used(api: Script, crawl: Crawl) -> None:
    api.answer(ACQUIRE, 201, SHORT_LEASE)
    crawl(api.url, lambda _lease: api.wait_for(RENEW, times=3))
    assert {asked.body["ttlSeconds"] for asked in api.asked if asked.path.endswith("renew")} == {1}
    assert api.calls()[-1] == RELEASE


def test_a_lease_that_the_fleet_ended_says_why(api: Script, crawl: Crawl, caplog: pytest.LogCaptureFixture) -> None:
    api.answer(ACQUIRE, 201, SHORT_LEASE)
    api.answer(RENEW, 410, ENDED)
    api.answer(REPORT, 410, ENDED)
    leases: list[Lease | AsyncLease] = []

    def use(lease: Lease | AsyncLease) -> None:
        leases.append(lease)
        lease.observe_status(200)
        api.wait_for(RENEW)

    crawl(api.url, use)
    assert leases[0].ended in {"proxy_replaced", None}
    assert "not renewed" in caplog.text or "not reported" in caplog.text
    assert api.calls().count(RENEW) == 1, "what is over is not renewed again"


def test_a_grant_whose_answer_was_lost_is_asked_for_again_by_the_same_key(api: Script, crawl: Crawl) -> None:
    api.answer(ACQUIRE, 0)
    api.answer(ACQUIRE, 503, {"status": 503, "code": "contended"}, Retry_After="1")
    crawl(api.url, nothing)
    assert api.calls() == [ACQUIRE, ACQUIRE, ACQUIRE, RELEASE]
    assert len({asked.headers["Idempotency-Key"] for asked in api.asked[:3]}) == 1


def test_a_report_is_not_sent_twice(api: Script, crawl: Crawl, caplog: pytest.LogCaptureFixture) -> None:
    api.answer(REPORT, 0)
    crawl(api.url, lambda lease: lease.observe_status(429))
    assert api.calls() == [ACQUIRE, REPORT, RELEASE]
    assert "was not reported" in caplog.text


def test_no_proxy_available_tells_why(api: Script, crawl: Crawl) -> None:
    api.answer(ACQUIRE, 409, NONE, Retry_After="60")
    with pytest.raises(NoProxyAvailable, match=r"None is free\.") as raised:
        crawl(api.url, nothing)
    assert raised.value.counts == {"matching": 2, "full": 2}
    assert raised.value.retry_after == 60


def test_no_proxy_available_is_waited_out_when_asked_to(api: Script, crawl: Crawl) -> None:
    for _ in range(2):
        api.answer(ACQUIRE, 409, NONE, Retry_After="1")
    crawl(api.url, nothing, wait=30)
    assert api.calls() == [ACQUIRE] * 3 + [RELEASE]
    api.answer(ACQUIRE, 409, NONE)
    api.answer(ACQUIRE, 409, NONE)
    with pytest.raises(NoProxyAvailable):
        crawl(api.url, nothing, wait=0.01)


def test_a_refusal_names_the_fields(api: Script, crawl: Crawl) -> None:
    wrong = {"status": 400, "code": "invalid_request", "detail": "", "errors": {"ttlSeconds": ["must be at least 1"]}}
    api.answer(ACQUIRE, 400, wrong)
    with pytest.raises(Refused, match="ttlSeconds: must be at least 1") as raised:
        crawl(api.url, nothing, ttl=0)
    assert raised.value.code == "invalid_request"
    assert api.calls() == [ACQUIRE], "what is wrong stays wrong"


def test_an_answer_of_something_in_between_is_a_refusal_too(api: Script, crawl: Crawl) -> None:
    api.answer(ACQUIRE, 401, ["not", "a", "problem"])  # type: ignore[arg-type]
    with pytest.raises(Refused, match="status 401"):
        crawl(api.url, nothing)


def test_an_api_that_is_away_is_unreachable_in_the_end(crawl: Crawl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(Unreachable, match="POST leases"):
        crawl(url, nothing, patience=0.3)

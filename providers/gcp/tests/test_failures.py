"""Every way to be refused or left alone, in the contract's terms; and what must show in none of them."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from providers.errors import (
    AuthenticationFailed,
    InvalidRequest,
    Misconfigured,
    PermissionDenied,
    ProviderError,
    QuotaExceeded,
    Unavailable,
)
from providers.gcp import calls
from providers.gcp.calls import Compute, Deadline
from providers.gcp.driver import GcpProvider
from providers.gcp.refusals import RATE_LIMIT_SECONDS
from providers.gcp.tests.requests import gcp_request
from providers.gcp.tests.standin.accounts import ServiceAccount
from providers.gcp.tests.standin.answers import invalid
from providers.gcp.tests.standin.backend import GceBackend
from providers.gcp.tests.standin.cloud import Cloud
from providers.gcp.tests.standin.server import ComputeServer, Fault, refused
from providers.tests.contract import FLEET

ANSWERS: list[tuple[Fault, type[ProviderError], str, str]] = [
    (refused(400, "invalid", "Invalid value"), InvalidRequest, "Misconfigured", "Invalid value"),
    (refused(400, "resourceNotReady"), Unavailable, "APIError", "HTTP 400"),
    (
        refused(401, "authError"),
        AuthenticationFailed,
        "AuthenticationFailed",
        "the product's credentials",
    ),
    (refused(403, "forbidden", "Required 'x' permission"), PermissionDenied, "PermissionDenied", "Required 'x'"),
    (refused(403, "accessNotConfigured", "API not used"), PermissionDenied, "PermissionDenied", "API not used"),
    (refused(403, "quotaExceeded", "Quota 'CPUS' exceeded"), QuotaExceeded, "QuotaExceeded", "Quota 'CPUS'"),
    (refused(403, "rateLimitExceeded"), Unavailable, "APIError", "rate limit"),
    (refused(412, "conditionNotMet", "Constraint violated"), PermissionDenied, "PermissionDenied", "Constraint"),
    (refused(429, "rateLimitExceeded"), Unavailable, "APIError", "rate limit"),
    (refused(500, "internalError"), Unavailable, "APIError", "HTTP 500"),
    (refused(502, "backendError"), Unavailable, "APIError", "HTTP 502"),
    (refused(503, "backendError"), Unavailable, "APIError", "HTTP 503"),
    (refused(504, "backendError"), Unavailable, "APIError", "HTTP 504"),
    (Fault(reset=True), Unavailable, "Unreachable", "can't be reached"),
    (Fault(hang=True), Unavailable, "Timeout", "did not answer in time"),
    (Fault(garble=lambda _: b"<html>proxy error</html>"), Unavailable, "APIError", "can't be read"),
]


@pytest.mark.parametrize(("fault", "expected", "finding", "told"), ANSWERS, ids=[told for *_, told in ANSWERS])
def test_every_answer_has_its_error(
    provider: GcpProvider,
    server: ComputeServer,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    expected: type[ProviderError],
    finding: str,
    told: str,
) -> None:
    instance = provider.create(gcp_request())
    if fault.hang:
        monkeypatch.setattr(calls, "REQUEST_SECONDS", 0.5)
    verbs: dict[str, Callable[[], object]] = {
        "instances.insert": lambda: provider.create(gcp_request()),
        "instances.get": lambda: provider.get(instance.provider_id),
        "instances.delete": lambda: provider.delete(instance.provider_id),
        "instances.aggregatedList": provider.list,
    }
    for method, verb in verbs.items():
        # A 401 is sent three times, each with a fresh token.
        server.faults[method].extend([fault] * 3)
        with pytest.raises(expected, match=told) as caught:
            verb()
        assert (caught.value.__cause__, caught.value.__context__) == (None, None), "the SDK's error leaks"
        assert caught.value.reason == ("Unavailable" if expected is Unavailable else expected.__name__)
        server.faults[method].clear()

    server.faults["instances.aggregatedList"].extend([fault] * 3)
    assert [(target.ready, target.reason) for target in provider.check()] == [(False, finding)]


def test_a_slow_answer_is_still_an_answer(provider: GcpProvider, server: ComputeServer) -> None:
    server.faults["instances.insert"].append(Fault(delay=0.3))
    assert provider.create(gcp_request())


def test_a_deadline_holds_over_many_calls(backend: GceBackend, server: ComputeServer) -> None:
    """Also when every answer comes, but late."""
    server.faults["instances.aggregatedList"].extend([Fault(delay=0.1)] * 50)
    compute, deadline = Compute(endpoint=server.url), Deadline(0.7)
    with pytest.raises(Unavailable, match="did not answer in time"):
        _list_for_ever(compute, deadline)
    assert 0 < server.calls["instances.aggregatedList"] < 20


def _list_for_ever(compute: Compute, deadline: Deadline) -> None:
    while True:
        compute.page("test-project", "", deadline)


@pytest.mark.parametrize("status", [403, 429])
def test_a_rate_limit_says_when_to_come_back(provider: GcpProvider, server: ComputeServer, status: int) -> None:
    waits = set()
    for asked in ("7", "300"):
        for _ in range(5):
            server.faults["instances.insert"].append(refused(status, "rateLimitExceeded", Retry_After=asked))
            with pytest.raises(Unavailable) as caught:
                provider.create(gcp_request())
            assert caught.value.retry_after is not None
            waits.add(caught.value.retry_after)
    shortest, longest = RATE_LIMIT_SECONDS
    spread = waits - {300.0}
    assert len(spread) == 5, "those who were refused together must not come back together"
    assert all(shortest <= wait <= longest for wait in spread)


@pytest.mark.parametrize("project", ["no-such-project", "test-project"])
def test_a_project_or_zone_that_is_not_found_says_nothing_of_the_instance(provider: GcpProvider, project: str) -> None:
    provider_id = provider.create(gcp_request()).provider_id
    elsewhere = provider_id.replace("test-project/europe-west1-b", f"{project}/mars-north1-a")
    for verb in (provider.get, provider.delete):
        with pytest.raises(Misconfigured, match="' was not found"):
            verb(elsewhere)


@pytest.mark.parametrize("block", [{"project": "no-such-project"}, {"network": "no-such-network"}])
def test_a_wrong_entry_is_no_fault_of_the_spec(backend: GceBackend, block: dict[str, str]) -> None:
    with pytest.raises(Misconfigured, match=f"{next(iter(block.values()))}' was not found"):
        backend.driver(fleet_id=FLEET, **block).create(gcp_request())


def test_a_missing_permission_is_named(provider: GcpProvider, cloud: Cloud) -> None:
    cloud.denied.add("compute.instances.create")
    with pytest.raises(PermissionDenied, match=r"Required 'compute\.instances\.create' permission"):
        provider.create(gcp_request())
    assert [target.reason for target in provider.check()] == ["Healthy"]
    cloud.denied.add("compute.instances.list")
    assert [target.reason for target in provider.check()] == ["PermissionDenied"]


@pytest.mark.parametrize("content", [None, "{}", "no json", '{"type": "service_account"}'])
def test_credentials_that_are_not_there_or_no_credentials(
    provider: GcpProvider, backend: GceBackend, content: str | None
) -> None:
    if content is None:
        backend.key_file.unlink()
    else:
        backend.key_file.write_text(content)
    with pytest.raises(Misconfigured, match="no usable Google credentials") as caught:
        provider.list()
    assert str(backend.key_file) in caught.value.detail
    assert [target.reason for target in provider.check()] == ["Misconfigured"]


def test_a_rotated_key_is_taken_up_and_a_revoked_one_refused(backend: GceBackend, server: ComputeServer) -> None:
    server.account = ServiceAccount()
    backend.key_file.write_text(server.account.new_key())
    provider = backend.driver(fleet_id=FLEET)
    provider.create(gcp_request())

    server.account.revoke_all()
    with pytest.raises(AuthenticationFailed):
        provider.create(gcp_request())
    backend.key_file.write_text(server.account.new_key())
    assert provider.create(gcp_request())


def test_many_threads_share_a_driver(provider: GcpProvider, cloud: Cloud) -> None:
    threads = [Thread(target=lambda: provider.create(gcp_request())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cloud.machines) == 8


def test_no_secret_shows_anywhere(
    provider: GcpProvider, backend: GceBackend, server: ComputeServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in a log at DEBUG with all that its records hold; not in an error, its cause or its traceback."""
    tokens: list[str] = []
    check = server.account.check

    def remember(header: str | None) -> None:
        tokens.append((header or "").removeprefix("Bearer "))
        check(header)

    server.account.check = remember  # type: ignore[method-assign]  # to learn what the SDK sent
    key = json.loads(backend.key_file.read_text())["private_key"]
    caplog.set_level(logging.DEBUG)
    loggers = [
        logging.getLogger(name) for name in ("google", "google.auth", "google.cloud", "google.api_core", "urllib3")
    ]
    for logger in loggers:
        caplog.set_level(logging.DEBUG, logger=logger.name)
    logging.getLogger("google").addHandler(caplog.handler)

    user_data = "#cloud-config\npassword: hunter2-is-secret\n" + "# padding\n" * 100
    try:
        instance = provider.create(gcp_request(user_data=user_data.encode()))
        seen = [repr(instance), repr(provider.list()), repr(provider)]
        faults = [
            Fault(before=_raise(lambda: invalid("resource.metadata.items[3].value", user_data, "Not so."))),
            Fault(garble=lambda _: b"<html>"),
            *(fault for fault, *_ in ANSWERS if not fault.hang),
        ]
        for fault in faults:
            server.faults["instances.insert"].extend([fault] * 3)
            with pytest.raises(ProviderError) as caught:
                provider.create(gcp_request(user_data=user_data.encode()))
            server.faults["instances.insert"].clear()
            seen += [str(caught.value), caught.value.detail, "".join(traceback.format_exception(caught.value))]
            seen += [repr(caught.value.__context__), repr(caught.value.__cause__)]
    finally:
        logging.getLogger("google").removeHandler(caplog.handler)

    logged = [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]
    assert any("urllib3" in line for line in logged), "the loggers were not heard"
    assert any("google.auth" in line for line in logged), "the loggers were not heard"
    for secret in ("hunter2", key.splitlines()[1], *tokens):
        assert secret
        for text in (*logged, *seen):
            assert secret not in text


def _raise(error: Callable[[], Exception]) -> Callable[[], None]:
    def raise_it() -> None:
        raise error()

    return raise_it


def test_nothing_is_asked_before_it_is_needed(backend: GceBackend, server: ComputeServer, tmp_path: Path) -> None:
    backend.key_file.unlink()
    backend.driver(fleet_id=FLEET)
    assert not server.calls

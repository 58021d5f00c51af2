"""Errors that no view raises: whatever goes wrong, below ``/v1/`` the answer is a problem."""

from __future__ import annotations

import pytest
from django.db import OperationalError, connection
from django.test import Client

from leasing import queries
from leasing.tests.api import Answer, Api


@pytest.mark.parametrize("path", ["/v1/whoami", "/v1/nowhere"])
def test_a_host_that_is_not_ours_is_a_problem(path: str) -> None:
    answer = Answer(Client(SERVER_NAME="elsewhere.example").get(path))
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert "PROXYFLEET_ALLOWED_HOSTS" in answer.body["detail"]


def test_outside_of_the_api_it_is_a_page() -> None:
    answer = Answer(Client(SERVER_NAME="elsewhere.example").get("/admin/login/"))
    assert (answer.status, answer.content_type) == (400, "text/html")


def test_too_many_parameters_are_a_problem(api: Api) -> None:
    answer = api.get("/v1/proxies?" + "&".join(f"p{number}=1" for number in range(2000)))
    assert (answer.status, answer.code) == (400, "invalid_request")


def test_a_body_that_django_itself_refuses_is_too_large_all_the_same(api: Api) -> None:
    answer = api.post("/v1/leases", b'{"client": "' + b"a" * 3_000_000 + b'"}')
    assert (answer.status, answer.code) == (413, "payload_too_large")


@pytest.mark.parametrize("path", ["/v1/schema", "/v1/docs"])
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
def test_a_problem_is_json_whatever_the_view_renders(path: str, method: str) -> None:
    answer = Answer(Client(SERVER_NAME="localhost").generic(method, path))
    assert (answer.status, answer.code) == (405, "method_not_allowed")


@pytest.mark.django_db(transaction=True)
def test_without_its_database_the_api_says_when_to_come_back() -> None:
    api = Api()
    try:
        with connection.cursor() as cursor, pytest.raises(OperationalError):
            cursor.execute("select pg_terminate_backend(pg_backend_pid())")
        answers = [api.get("/v1/proxies"), api.post("/v1/leases", {}), api.get("/v1/targets")]
    finally:
        connection.close()
    assert [(answer.status, answer.code) for answer in answers] == [(503, "unavailable")] * 3
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
    assert api.get("/v1/proxies").status == 200


def test_a_bug_is_a_problem_too(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(queries, "proxies", fail)
    answer = Answer(Client(SERVER_NAME="localhost", raise_request_exception=False).get("/v1/proxies"))
    assert (answer.status, answer.code) == (500, "internal_error")

"""Signing in by real requests, right and wrong, from here and through proxies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http import HTTPStatus
from ipaddress import ip_network
from typing import Any

import pytest
import requests
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from proxyfleet import conf
from proxyfleet.signin.address import client_of, site_of
from proxyfleet.signin.models import FailedSignIns
from proxyfleet.signin.throttle import FAILURES_OF_ADDRESS, FAILURES_OF_NAME, WAIT

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "correct horse battery staple"


class Door:
    """Somebody in front of the form, without a browser."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/admin/login/?next=/admin/"

    def knock(self, name: str, password: str = "wrong", **headers: str) -> requests.Response:
        with requests.Session() as session:
            token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', session.get(self.url, timeout=60).text)
            assert token is not None
            form = {"username": name, "password": password, "csrfmiddlewaretoken": token[1], "next": "/admin/"}
            return session.post(self.url, data=form, headers=headers, timeout=60, allow_redirects=False)

    def fail(self, times: int, name: str = "olive", **headers: str) -> None:
        for _ in range(times):
            assert self.knock(name, **headers).status_code == HTTPStatus.OK

    def opens(self, name: str = "olive", **headers: str) -> bool:
        answer = self.knock(name, PASSWORD, **headers)
        assert answer.status_code in (HTTPStatus.FOUND, HTTPStatus.TOO_MANY_REQUESTS)
        return answer.status_code == HTTPStatus.FOUND


@pytest.fixture
def server(transactional_db: None) -> Iterator[LiveServer]:
    server = LiveServer("127.0.0.1")
    yield server
    server.stop()


@pytest.fixture
def door(server: LiveServer, settings: Any) -> Door:
    # Each try would take a second of processor time, which is what the real hashers are for.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    for name in ("olive", "ann"):
        User.objects.create_user(name, password=PASSWORD, is_staff=True)
    return Door(server.url)


def later() -> None:
    """As if WAIT had passed."""
    for row in FailedSignIns.objects.all():
        FailedSignIns.objects.filter(pk=row.pk).update(last_at=row.last_at - WAIT)


def test_who_failed_too_often_is_told_for_how_long(door: Door) -> None:
    door.fail(FAILURES_OF_NAME)
    refused = door.knock("olive")
    assert refused.status_code == HTTPStatus.TOO_MANY_REQUESTS
    assert "<strong>15 minutes</strong> from now: not before" in refused.text
    assert 0 < int(refused.headers["Retry-After"]) <= WAIT.total_seconds()
    assert not door.opens(), "the right password must not help to find it"
    later()
    assert door.opens()


def test_trying_on_does_not_make_it_longer(door: Door) -> None:
    door.fail(FAILURES_OF_NAME)
    rows = list(FailedSignIns.objects.order_by("key").values())
    for _ in range(3):
        assert door.knock("olive").status_code == HTTPStatus.TOO_MANY_REQUESTS
    assert list(FailedSignIns.objects.order_by("key").values()) == rows


def test_others_can_still_sign_in(door: Door) -> None:
    door.fail(FAILURES_OF_NAME)
    assert not door.opens("olive")
    assert door.opens("ann")


def test_a_good_try_starts_anew(door: Door) -> None:
    for _ in range(3):
        door.fail(FAILURES_OF_NAME - 1)
        assert door.opens()


def test_a_name_is_one_however_it_is_written(door: Door) -> None:
    door.fail(FAILURES_OF_NAME - 1, "Olive")
    door.fail(1, "OLIVE")
    assert not door.opens("olive")


def test_many_names_from_one_address_are_too_many(door: Door) -> None:
    for number in range(FAILURES_OF_ADDRESS):
        door.fail(1, f"somebody-{number}")
    assert not door.opens()


def test_tries_at_the_same_moment_do_not_get_past_it(door: Door) -> None:
    with ThreadPoolExecutor(12) as crowd:
        answers = list(crowd.map(lambda _: door.knock("olive").status_code, range(12)))
    assert answers.count(HTTPStatus.OK) == FAILURES_OF_NAME
    assert answers.count(HTTPStatus.TOO_MANY_REQUESTS) == 12 - FAILURES_OF_NAME


def test_a_header_that_anyone_can_send_changes_nothing(door: Door) -> None:
    for number in range(FAILURES_OF_NAME):
        door.fail(1, **{"X-Forwarded-For": f"203.0.113.{number}"})
    assert not door.opens(**{"X-Forwarded-For": "203.0.113.77"})


def test_clients_of_a_trusted_proxy_are_told_apart(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYFLEET_TRUSTED_PROXIES", "127.0.0.0/8, 10.0.0.0/8")
    conf.settings.cache_clear()
    try:
        door.fail(FAILURES_OF_NAME, **{"X-Forwarded-For": "203.0.113.1, 10.1.2.3"})
        assert not door.opens(**{"X-Forwarded-For": "198.51.100.9, 203.0.113.1"}), "the first is what it claims"
        assert door.opens(**{"X-Forwarded-For": "203.0.113.2"})
    finally:
        monkeypatch.undo()
        conf.settings.cache_clear()


def test_nothing_typed_is_kept_as_it_is(door: Door) -> None:
    door.fail(1, "my-password-in-the-wrong-field")
    assert "my-password" not in str(list(FailedSignIns.objects.values()))


def test_old_failures_go(door: Door) -> None:
    FailedSignIns.objects.create(key="old", failures=3, last_at=timezone.now() - WAIT - timedelta(seconds=1))
    door.fail(1)
    assert not FailedSignIns.objects.filter(key="old").exists()


def test_the_api_does_not_ask(door: Door, server: LiveServer) -> None:
    door.fail(FAILURES_OF_NAME)
    rows = list(FailedSignIns.objects.values())
    answer = requests.get(f"{server.url}/v1/proxies", headers={"Authorization": "Bearer wrong"}, timeout=60)
    assert answer.status_code != HTTPStatus.TOO_MANY_REQUESTS
    assert list(FailedSignIns.objects.values()) == rows


TRUSTED = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


@pytest.mark.parametrize(
    ("environ", "client"),
    [
        ({"REMOTE_ADDR": "192.0.2.1"}, "192.0.2.1"),
        ({"REMOTE_ADDR": "192.0.2.1", "HTTP_X_FORWARDED_FOR": "203.0.113.1"}, "192.0.2.1"),
        ({"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "203.0.113.1"}, "203.0.113.1"),
        ({"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "1.1.1.1, 203.0.113.1, 10.0.0.2"}, "203.0.113.1"),
        ({"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "203.0.113.1, nonsense"}, "10.0.0.1"),
        ({"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": ""}, "10.0.0.1"),
        ({"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "10.0.0.3"}, "10.0.0.3"),
        ({"REMOTE_ADDR": "::ffff:10.0.0.1", "HTTP_X_FORWARDED_FOR": "2001:db8::1"}, "2001:db8::1"),
        ({"REMOTE_ADDR": ""}, ""),
        ({}, ""),
    ],
)
def test_the_client_behind_proxies(environ: dict[str, Any], client: str) -> None:
    assert client_of(environ, TRUSTED) == client


def test_one_customers_ipv6_addresses_are_one() -> None:
    assert site_of("2001:db8:0:1::5") == site_of("2001:db8:0:1:ffff::") != site_of("2001:db8:0:2::5")
    assert site_of("192.0.2.1") != site_of("192.0.2.2")

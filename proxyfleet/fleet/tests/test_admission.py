"""An installation that takes public addresses only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from proxyfleet.conf import settings
from proxyfleet.fleet import operations
from proxyfleet.fleet.admission import admit
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.spec import InvalidSpec

MANAGED = {"provider": "here"}


def external(host: str) -> dict[str, Any]:
    return {"mode": "External", "endpoint": {"host": host}}


def probing(url: str) -> dict[str, Any]:
    return MANAGED | {"healthCheck": {"url": url}}


@pytest.fixture
def public_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PROXYFLEET_REFUSE_PRIVATE_ADDRESSES", "true")
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        (external("10.0.0.5"), "endpoint.host"),
        (external("127.0.0.1"), "endpoint.host"),
        (external("100.64.0.1"), "endpoint.host"),
        (external("fd00::1"), "endpoint.host"),
        (external("::ffff:192.168.0.1"), "endpoint.host"),
        (external("64:ff9b::10.0.0.1"), "endpoint.host"),
        (external("localhost"), "endpoint.host"),
        (probing("http://10.96.0.1/"), "healthCheck.url"),
        (probing("http://0x0a000001/"), "healthCheck.url"),
        (probing("http://[fd00::1]:8080/"), "healthCheck.url"),
        (probing("http://metadata.localhost/"), "healthCheck.url"),
    ],
)
def test_a_private_address_is_refused(declared: dict[str, Any], field: str, public_only: None) -> None:
    with pytest.raises(InvalidSpec, match="not a public address") as raised:
        admit(declared)
    assert set(raised.value.errors) == {field}


@pytest.mark.parametrize(
    "declared", [external("8.8.8.8"), external("proxy.example"), probing("https://1.1.1.1/"), MANAGED]
)
def test_anything_else_is_taken(declared: dict[str, Any], public_only: None) -> None:
    assert admit(declared).declared()


def test_private_addresses_are_taken_unless_refused() -> None:
    assert admit(external("10.0.0.5")).declared()


@pytest.mark.django_db
def test_what_was_declared_before_goes_on_but_is_not_declared_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = operations.declare("default", "inside", external("10.0.0.5"), actor="test", now=timezone.now())
    monkeypatch.setenv("PROXYFLEET_REFUSE_PRIVATE_ADDRESSES", "true")
    settings.cache_clear()
    try:
        assert Proxy.objects.get(pk=proxy.pk).spec.endpoint is not None
        with pytest.raises(InvalidSpec, match=r"endpoint\.host"):
            operations.update(proxy.pk, external("10.0.0.6"), actor="test", now=timezone.now())
    finally:
        monkeypatch.undo()
        settings.cache_clear()

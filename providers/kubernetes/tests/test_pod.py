"""What is read from a pod, and what is asked of it before the API server sees it."""

from __future__ import annotations

import pytest

from providers.kubernetes.pod import instance_of, is_image_name
from providers.tests.contract import make_request


@pytest.mark.parametrize(
    "name",
    [
        "squid",
        "ubuntu/squid:6.6-24.04_edge",
        "local/squid:dev",
        "registry.example.com:5000/team/squid__x@sha256:" + "a" * 64,
    ],
)
def test_a_name_of_an_image(name: str) -> None:
    assert is_image_name(name)


@pytest.mark.parametrize("name", ["Squid", "squid:", "squid:a b", "/squid", "https://hub/squid", "squid@sha256:1"])
def test_no_name_of_an_image(name: str) -> None:
    assert not is_image_name(name)


@pytest.mark.parametrize(
    ("reported", "address"),
    [
        ([], None),
        (["fd00::7", "10.244.0.7"], "10.244.0.7"),
        (["fd00::7"], "fd00::7"),
        (["169.254.1.1", "fe80::1", "fd00::7"], "fd00::7"),
        (["169.254.1.1"], None),
    ],
)
def test_the_address_is_one_that_clients_can_use(reported: list[str], address: str | None) -> None:
    pod = {
        "metadata": {"namespace": "ns", "name": "pod", "uid": "uid", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {
            "podIPs": [{"ip": ip} for ip in reported],
            "containerStatuses": [{"state": {"running": {}}, "started": True}],
        },
    }
    assert instance_of(pod, make_request().identity, entry="in-cluster").address == address

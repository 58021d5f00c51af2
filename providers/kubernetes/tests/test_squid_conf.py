"""Which targets the generated configuration denies."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from providers.kubernetes.squid import denied_targets, squid_conf


def is_denied(address: str, *allowed: str) -> bool:
    networks = denied_targets([ip_network(network) for network in allowed])
    return any(ip_address(address) in network for network in networks)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.96.0.1", "169.254.169.254", "192.168.1.1", "172.31.255.255", "100.64.0.1", "224.0.0.1"),
        *("255.255.255.255", "0.0.0.0", "::1", "fd00::1", "fe80::1", "ff02::1"),
    ],
)
def test_what_is_not_public_is_denied(address: str) -> None:
    assert is_denied(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808"])
def test_what_is_public_is_not(address: str) -> None:
    assert not is_denied(address)


def test_an_exception_allows_itself_and_nothing_beside_it() -> None:
    assert not is_denied("10.88.0.1", "10.88.0.1/32", "fd00:1::/32")
    assert not is_denied("fd00:1::5", "10.88.0.1/32", "fd00:1::/32")
    assert is_denied("10.88.0.2", "10.88.0.1/32", "fd00:1::/32")
    assert is_denied("10.88.0.0", "10.88.0.1/32", "fd00:1::/32")
    assert is_denied("fd00:2::1", "10.88.0.1/32", "fd00:1::/32")


def test_an_exception_may_be_wider_than_what_it_allows() -> None:
    assert not is_denied("10.0.0.1", "0.0.0.0/0")
    assert is_denied("fd00::1", "0.0.0.0/0")


def test_nothing_private_left_makes_no_empty_acl() -> None:
    everything = [ip_network("0.0.0.0/0"), ip_network("::/0")]
    conf = squid_conf(port=3128, clients=[ip_network("10.0.0.0/8")], allowed_private_targets=everything)
    assert "denied_targets" not in conf

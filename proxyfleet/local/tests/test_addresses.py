from __future__ import annotations

import re
import socket

import pytest

from proxyfleet.local.addresses import Address, free_port, internet_reachable
from proxyfleet.local.errors import LocalError


@pytest.mark.parametrize(
    ("text", "host", "port", "local_url"),
    [
        (":8090", "0.0.0.0", 8090, "http://127.0.0.1:8090"),
        ("127.0.0.1:80", "127.0.0.1", 80, "http://127.0.0.1:80"),
        ("[::1]:8090", "::1", 8090, "http://[::1]:8090"),
        ("[::]:8090", "::", 8090, "http://[::1]:8090"),
    ],
)
def test_reads_an_address(text: str, host: str, port: int, local_url: str) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.local_url) == (host, port, local_url)


def test_a_name_is_resolved_as_servers_want_it() -> None:
    assert Address.parse("localhost:65535").host in {"127.0.0.1", "::1"}


@pytest.mark.parametrize(
    "text",
    ["", "8090", "::1:8090", "localhost:", "localhost:0", "localhost:65536", "localhost:http", "[::1]", "no host:80"],
)
def test_refuses_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        Address.parse(text)


def test_a_taken_port_is_named_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalError, match=rf"127\.0\.0\.1:{port} .*PROXYFLEET_DISCOVERY_ADDR"):
            Address("127.0.0.1", port).require_free()
    Address("127.0.0.1", port).require_free()


def test_a_foreign_host_is_no_place_to_listen() -> None:
    with pytest.raises(LocalError, match=r"192\.0\.2\.1"):
        Address("192.0.2.1", 8090).require_free()


def test_nothing_answers_on_a_free_port() -> None:
    assert not internet_reachable(f"https://127.0.0.1:{free_port()}/")

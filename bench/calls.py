"""The calls that measurements are made of."""

from __future__ import annotations

import re

from bench.http import Connection, Script, expect, request
from bench.stage import TOKEN

LEASES = "/v1/leases"
NOOP = "/noop"
_LEASE_ID = re.compile(rb'"leaseID":\s*"([0-9a-f-]{36})"')


def acquire(**wish: object) -> bytes:
    return request("POST", LEASES, TOKEN, {"ttlSeconds": 60} | wish)


def release(lease_id: bytes) -> bytes:
    return request("DELETE", f"{LEASES}/{lease_id.decode()}", TOKEN)


def lease_ids(answer: bytes) -> list[bytes]:
    expect(answer, b"201")
    return _LEASE_ID.findall(answer)


def give_back(connection: Connection, answer: bytes) -> None:
    for lease_id in lease_ids(answer):
        expect(connection.exchange(release(lease_id)), b"204")


def lease_pairs() -> Script:
    """Lease, release, for ever."""
    wanted = acquire(target="example.com")
    while True:
        (lease_id,) = lease_ids((yield wanted))
        expect((yield release(lease_id)), b"204")


def noop_pairs() -> Script:
    """The same methods, sizes and headers, for nothing."""
    wanted = request("POST", NOOP, TOKEN, {"ttlSeconds": 60, "target": "example.com"})
    away = request("DELETE", NOOP, TOKEN)
    while True:
        expect((yield wanted), b"201")
        expect((yield away), b"204")

from __future__ import annotations

import json

import pytest

from health.whoami import Told, read_answer

EGRESS = "203.0.113.9"
OURS = "10.1.2.3"


def told(headers: dict[str, str]) -> tuple[str, ...] | None:
    body = json.dumps({"ip": EGRESS, "headers": headers}).encode()
    return read_answer(body, own_address=OURS).leaking_headers


@pytest.mark.parametrize(
    ("name", "value", "leaks"),
    [
        ("X-Forwarded-For", OURS, True),
        ("x-forwarded-for", f"unknown, {OURS}", True),
        ("X-Forwarded-For", "198.51.100.7", True),  # a NAT's: ours as the proxy sees us
        ("X-Forwarded-For", "198.51.100.7:4711", True),
        ("X-Forwarded-For", "[2001:db8::1]:4711", True),
        ("X-Forwarded-For", "::ffff:198.51.100.7", True),
        ("X-Forwarded-For", EGRESS, False),
        ("X-Forwarded-For", "unknown", False),
        ("X-Forwarded-For", "", False),
        ("X-Real-IP", OURS, True),
        ("Client-IP", "not an address", False),
        ("Forwarded", f'for={OURS};by="203.0.113.44"', True),
        ("Forwarded", 'for="[2001:db8::1]:80";proto=http', True),
        ("Forwarded", "for=_hidden;by=203.0.113.44", False),
        ("Via", "1.1 proxy (squid/6.6)", False),
        ("Via", "1.1 203.0.113.44:3128 (squid/6.6)", False),
        ("Via", f"1.1 {OURS}:51234 (odd)", True),
        ("Accept", OURS, False),
        ("Proxy-Connection", "keep-alive", False),
    ],
)
def test_what_leaks(name: str, value: str, leaks: bool) -> None:
    names = {"x-forwarded-for": "X-Forwarded-For"}
    assert told({name: value}) == ((names.get(name, name),) if leaks else ())


def test_names_are_ours_and_not_the_peers() -> None:
    assert told({"VIA": OURS, "x-real-IP": OURS, "<b>": OURS}) == ("Via", "X-Real-IP")


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"203.0.113.9\n", Told(EGRESS)),
        (b'{"ip": "203.0.113.9"}', Told(EGRESS)),
        (b'{"ip": "203.0.113.9", "headers": {}}', Told(EGRESS, ())),
        (b'{"ip": "203.0.113.9", "headers": {"X-Forwarded-For": 7}}', Told(EGRESS, ())),
        (b'{"ip": "203.0.113.9", "headers": [1]}', Told(EGRESS)),
        (b'{"headers": {"X-Forwarded-For": "10.1.2.3"}}', Told()),
        (b"[" * 100_000, Told()),
        (b'{"a":' * 50_000, Told()),
        (b"fe80::1%eth0", Told()),
        (b"", Told()),
    ],
)
def test_other_answers(body: bytes, answer: Told) -> None:
    assert read_answer(body, own_address=OURS) == answer

"""Bytes that no library would send, to a live server: each is answered, and never by a failure of ours."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence

import pytest

from proxyfleet.local.addresses import Address
from proxyfleet.local.processes import wait_until
from tests.api_processes import TOKEN, Deployment
from tests.storm.clients import Client

pytestmark = pytest.mark.timeout(300)

MAKE_FLEET = """
from proxyfleet.fleet.tests.world import new_world
with new_world() as world:
    world.ready(world.declare(mode="External", endpoint={"host": "192.0.2.1"}, maxLeases=10_000))
"""
AUTHORIZED = f"Authorization: Bearer {TOKEN}"
SILENCE = 30
"""Seconds within which an answer comes, on whatever machine."""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path_factory.mktemp("deployment"), processes=2, fleet=MAKE_FLEET)
    deployment.start()
    yield deployment
    deployment.stop()


def request(line: str, *headers: str, body: bytes = b"", version: str = "HTTP/1.1", close: bool = True) -> bytes:
    named = ["Host: localhost", AUTHORIZED, *(["Connection: close"] if close else []), *headers]
    return "\r\n".join([f"{line} {version}", *named, "", ""]).encode("latin-1") + body


def post(body: str | bytes, *headers: str, kind: str = "application/json", **options: object) -> bytes:
    content = body.encode() if isinstance(body, str) else body
    described = [f"Content-Type: {kind}", f"Content-Length: {len(content)}"]
    return request("POST /v1/leases", *described, *headers, body=content, **options)  # type: ignore[arg-type]


def get(path: str, *headers: str) -> bytes:
    return request(f"GET {path}", *headers)


def answers(address: Address, sent: bytes) -> str:
    """All that comes back until the server hangs up."""
    with socket.create_connection((address.host, address.port), timeout=SILENCE) as connection:
        connection.sendall(sent)
        received = b""
        while more := connection.recv(65_536):
            received += more
    return received.decode("latin-1")


def statuses(received: str) -> list[int]:
    return [int(part[2:5]) for part in received.split("HTTP/1.")[1:]]


# Status 0: whatever refuses it, as it is the server's or Django's before it is ours.
CASES: Sequence[tuple[str, bytes, int]] = [
    ("an empty object", post("{}"), 201),
    ("no body", request("POST /v1/leases"), 201),
    ("malformed UTF-8", post(b'{"client": "\xff\xfe"}'), 400),
    ("UTF-16", post("{}".encode("utf-16")), 400),
    ("a byte order mark", post(b"\xef\xbb\xbf{}"), 400),
    ("a name twice", post('{"ttlSeconds": 5, "ttlSeconds": 6}'), 400),
    ("a name twice, deeper", post('{"selector": {"a": "b", "a": "c"}}'), 400),
    ("NaN", post('{"ttlSeconds": NaN}'), 400),
    ("infinity by overflow", post('{"ttlSeconds": 1e400}'), 400),
    ("an integer of 400 digits", post('{"ttlSeconds": ' + "9" * 400 + "}"), 201),
    ("an integer of 5000 digits", post('{"ttlSeconds": ' + "9" * 5000 + "}"), 400),
    ("a count beyond any", post('{"count": 1e300}'), 400),
    ("arrays without end", post("[" * 100_000), 400),
    ("objects in objects", post('{"selector": ' + '{"a":' * 20_000 + "1" + "}" * 20_000 + "}"), 400),
    ("a lone surrogate", post('{"client": "\\ud800"}'), 400),
    ("NUL", post('{"client": "\\u0000"}'), 400),
    ("a target with a scope", post('{"target": "fe80::1%\\u0000"}'), 400),
    ("a target with a long scope", post('{"target": "fe80::1%' + "a" * 1000 + '"}'), 400),
    ("a target that is half an address", post('{"target": "http://[::1"}'), 400),
    ("another type", post("{}", kind="text/plain"), 415),
    ("no type", post("{}", kind=""), 415),
    ("a type of bytes", post("{}", kind="\xff/;;;="), 415),
    ("a type with a charset", post("{}", kind="application/json; charset=utf-8"), 201),
    (
        "a body in chunks",
        request("POST /v1/leases", "Content-Type: application/json", "Transfer-Encoding: chunked")
        + b"2\r\n{}\r\n0\r\n\r\n",
        411,
    ),
    ("chunks and a length", post(b"2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), 411),
    ("two lengths", post("{}", "Content-Length: 3"), 400),
    ("a negative length", request("POST /v1/leases", "Content-Length: -1"), 400),
    ("a length of letters", request("POST /v1/leases", "Content-Length: abc"), 400),
    ("a length beyond any", request("POST /v1/leases", f"Content-Length: {2**40}"), 413),
    ("a key that is not ASCII", post("{}", "Idempotency-Key: \xc3\xa4"), 400),
    ("an expectation of something else", post("{}", "Expect: else"), 0),
    ("HTTP/1.0", post("{}", version="HTTP/1.0"), 201),
    ("HTTP/9.9", post("{}", version="HTTP/9.9"), 400),
    ("no host", b"GET /v1/whoami HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
    ("a host of bytes", b"GET /v1/whoami HTTP/1.1\r\nHost: \xff\r\nConnection: close\r\n\r\n", 400),
    ("lines that end in LF", b"GET /v1/whoami HTTP/1.1\nHost: localhost\nConnection: close\n\n", 0),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 50 + b"\r\n\r\n", 400),
    ("an absolute URI", get("http://localhost/v1/whoami"), 200),
    ("a path of bytes", get("/v1/leases/%ff%fe%00"), 404),
    ("a name of bytes", get("/v1/proxies/%ff/%00"), 404),
    ("bytes in a path", get("/v1/leases/\xff"), 400),
    ("a parameter of bytes", get("/v1/proxies?provider=%ff%fe"), 200),
    ("a selector of NUL", get("/v1/proxies?selector=%00"), 400),
    ("a cursor of bytes", get("/v1/proxies?cursor=%00%ff"), 400),
    ("a URL without end", get("/v1/proxies?selector=" + "a" * 70_000), 414),
    ("a header without end", get("/v1/proxies", "X: " + "a" * 300_000), 0),
    ("headers without end", get("/v1/proxies", *(f"X-{number}: 1" for number in range(500))), 431),
    ("two tokens", get("/v1/proxies", AUTHORIZED), 401),
    ("an odd Accept", get("/v1/proxies", "Accept: ;;;,q="), 406),
    ("XML", get("/v1/proxies", "Accept: text/xml"), 406),
    ("the schema in no language", get("/v1/schema?lang=%00&version=%00&format=x"), 200),
    ("a body with GET", request("GET /v1/proxies", "Content-Length: 2", body=b"{}"), 200),
    ("CONNECT", request("CONNECT localhost:443"), 0),
    ("another method", request("FROB /v1/leases"), 405),
    ("OPTIONS of all", request("OPTIONS *"), 0),
]


@pytest.mark.parametrize(("sent", "status"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_whatever_is_sent_is_answered(deployment: Deployment, sent: bytes, status: int) -> None:
    received = answers(deployment.addresses[0], sent)
    (answered,) = statuses(received)
    assert answered == (status or answered)
    assert answered < 500, received
    log = (deployment.folder / "web.log").read_text()
    assert "Traceback" not in log
    assert TOKEN not in log + received


def test_a_client_that_waits_to_be_told_to_go_on_is_told(deployment: Deployment) -> None:
    assert statuses(answers(deployment.addresses[0], post("{}", "Expect: 100-continue"))) == [100, 201]


def test_requests_in_a_row_are_answered_in_a_row(deployment: Deployment) -> None:
    row = [post(json.dumps({"client": f"c{number}"}), close=False) for number in range(3)]
    received = answers(deployment.addresses[0], b"".join([*row, get("/v1/whoami")]))
    assert statuses(received) == [201, 201, 201, 200]
    assert [received.index(f'"c{number}"') for number in range(3)] == sorted(
        received.index(f'"c{number}"') for number in range(3)
    )


def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing(deployment: Deployment) -> None:
    address = deployment.addresses[0]
    with socket.create_connection((address.host, address.port), timeout=SILENCE) as connection:
        connection.sendall(request("POST /v1/leases", "Content-Type: application/json", "Content-Length: 50") + b"{")
    assert statuses(answers(address, get("/v1/whoami"))) == [200]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/leases", {"POST"}),
        ("/v1/leases/x", {"GET", "HEAD", "DELETE"}),
        ("/v1/leases/x/renew", {"POST"}),
        ("/v1/proxies", {"GET", "HEAD"}),
        ("/v1/proxies/default/a", {"GET", "HEAD", "PUT", "DELETE"}),
        ("/v1/targets", {"GET", "HEAD"}),
        ("/v1/whoami", {"GET", "HEAD"}),
    ],
)
@pytest.mark.parametrize("method", ["OPTIONS", "PATCH"])
def test_what_is_not_allowed_says_what_is(deployment: Deployment, method: str, path: str, allowed: set[str]) -> None:
    received = answers(deployment.addresses[0], request(f"{method} {path}"))
    assert statuses(received) == [405]
    headers = dict(line.split(": ", 1) for line in received.partition("\r\n\r\n")[0].split("\r\n")[1:])
    assert set(headers["allow"].split(", ")) == allowed


def test_head_is_get_without_a_body(deployment: Deployment) -> None:
    received = answers(deployment.addresses[0], request("HEAD /v1/proxies"))
    assert statuses(received) == [200]
    assert received.partition("\r\n\r\n")[2] == ""


def test_a_token_is_refused_by_every_process_soon_after_its_revocation(deployment: Deployment) -> None:
    secret = deployment.manage("create_token", "brief", "--scope", "lease").strip()
    clients = [Client([address], token=secret) for address in deployment.addresses]
    assert [client.lease().status for client in clients] == [201] * len(clients)
    deployment.manage(
        *("shell", "--no-imports", "--command"),
        "from leasing.models import ApiToken; from django.utils import timezone; "
        "ApiToken.objects.filter(name='brief').update(revoked_at=timezone.now())",
    )
    # Each remembers a token for two seconds, while it is used and while it is not.
    assert wait_until(lambda: [client.lease().status for client in clients] == [401] * len(clients), SILENCE)
    for client in clients:
        client.close()


def test_a_token_has_the_rate_that_it_was_made_with(deployment: Deployment) -> None:
    secret = deployment.manage("create_token", "slow", "--scope", "lease", "--rate", "1").strip()
    client = Client(deployment.addresses[:1], token=secret)
    refused = next(answer for answer in iter(client.lease, None) if answer.status != 201)
    assert (refused.status, refused.body["code"]) == (429, "too_many_requests")
    time.sleep(int(refused.headers["Retry-After"]))
    assert client.lease().status == 201
    client.close()

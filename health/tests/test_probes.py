"""Every outcome, and every way in which a proxy or a target can misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from health.probes import probe, tls_context
from health.results import Outcome, ProbeRequest, ProbeResult, ProxyCredentials, Stage
from health.running import Probes
from health.tests.conftest import Certificates
from health.tests.peers import (
    CONSENT,
    Script,
    answer,
    answer_and_stay,
    answer_forever,
    close_after_request,
    close_at_once,
    consent_then,
    consent_then_close,
    consent_then_reset,
    drip,
    half_close_after_request,
    reset_after_request,
    reset_at_once,
    serving,
    stay_silent,
    tunnel,
)

SHORT = 0.6
"""Timeout in seconds of probes that are meant to reach it."""
LONG = 20.0
"""Timeout in seconds of probes that are not."""
SLACK = 5.0
"""What a loaded machine may add to a deadline, in seconds."""

WHOAMI = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{"ip": "203.0.113.9"}'
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
PASSWORD = "correct-horse-battery"


@dataclass(frozen=True)
class Case:
    """What a peer does, and what a probe must make of it."""

    id: str
    script: Script
    outcome: Outcome
    stage: Stage
    status: int | None = None
    egress_ip: str | None = None

    @property
    def timeout(self) -> float:
        return SHORT if self.outcome is Outcome.TIMEOUT else LONG

    def check(self, result: ProbeResult[int]) -> None:
        assert (result.outcome, result.stage, result.status, result.egress_ip) == (
            self.outcome,
            self.stage,
            self.status,
            self.egress_ip,
        ), result.message
        assert bool(result.message) != result.is_ok
        assert "\n" not in result.message
        assert list(result.seconds)[-1] is self.stage
        assert sum(result.seconds.values()) < self.timeout + SLACK


def by_id(cases: Iterable[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in cases])


def text(status: int, body: bytes = b"", *headers: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 %d X" % status, *headers, b"", body])


CHUNKED = b"Transfer-Encoding: chunked"
OK, RESPONSE, TUNNEL, TLS = Outcome.OK, Stage.RESPONSE, Stage.TUNNEL, Stage.TLS

RESPONSES = [
    Case("whoami", answer_and_stay(WHOAMI), OK, RESPONSE, 200, "203.0.113.9"),
    Case("bare address until the end", answer(text(200, b"2001:db8::7\n")), OK, RESPONSE, 200, "2001:db8::7"),
    Case("mapped address", answer(text(200, b"::ffff:203.0.113.9")), OK, RESPONSE, 200, "203.0.113.9"),
    Case(
        "chunked address",
        answer_and_stay(text(200, b"4;x=y\r\n203.\r\n7\r\n0.113.9\r\n0\r\n\r\n", CHUNKED)),
        OK,
        RESPONSE,
        200,
        "203.0.113.9",
    ),
    Case("no content", answer_and_stay(NO_CONTENT), OK, RESPONSE, 204),
    Case("redirect", answer(text(302, b"", b"Location: /x")), OK, RESPONSE, 302),
    Case("some text", answer(text(200, b"hello")), OK, RESPONSE, 200),
    Case("not an address", answer(text(200, b'{"ip": 16909060}')), OK, RESPONSE, 200),
    Case("address with a scope", answer(text(200, b"fe80::1%eth0")), OK, RESPONSE, 200),
    Case("deep JSON", answer(text(200, b'{"ip":' + b"[" * 4000)), OK, RESPONSE, 200),
    Case("HTML is not read", answer_and_stay(text(200, b"<", b"Content-Type: text/html")), OK, RESPONSE, 200),
    Case("endless body", answer_forever(text(200), b"x" * 4096), OK, RESPONSE, 200),
    Case("HTTP/1.0", answer(b"HTTP/1.0 200 OK\r\n\r\n203.0.113.9"), OK, RESPONSE, 200, "203.0.113.9"),
    Case("no reason phrase", answer_and_stay(b"HTTP/1.1 204\r\n\r\n"), OK, RESPONSE, 204),
    Case("bare line feeds", answer_and_stay(b"HTTP/1.1 204 No\nA: b\n\n"), OK, RESPONSE, 204),
    Case("interim responses", answer_and_stay(text(100) + text(103, b"", b"Link: x") + NO_CONTENT), OK, RESPONSE, 204),
    Case("slow but in time", drip(NO_CONTENT, seconds_per_byte=0.002), OK, RESPONSE, 204),
    Case("not found", answer(text(404)), Outcome.BAD_STATUS, RESPONSE, 404),
    Case("server error", answer(text(503)), Outcome.BAD_STATUS, RESPONSE, 503),
    Case("a status of its own", answer(text(799)), Outcome.BAD_STATUS, RESPONSE, 799),
    Case("switching protocols", answer(text(101)), Outcome.BAD_STATUS, RESPONSE, 101),
    Case("silent", stay_silent, Outcome.TIMEOUT, RESPONSE),
    Case("slow drip of headers", drip(NO_CONTENT), Outcome.TIMEOUT, RESPONSE),
    Case("slow drip of a body", drip(text(200, b"203.0.113.9"), seconds_per_byte=0.05), Outcome.TIMEOUT, RESPONSE),
    Case("body that stalls", answer_and_stay(text(200, b"203.")), Outcome.TIMEOUT, RESPONSE, 200),
    Case("interim response only", answer_and_stay(text(100)), Outcome.TIMEOUT, RESPONSE, 100),
    Case("endless interim responses", answer_forever(b"", text(100) * 99), Outcome.PROTOCOL_ERROR, RESPONSE, 100),
    Case("endless headers", answer_forever(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 99), Outcome.PROTOCOL_ERROR, RESPONSE),
    Case("endless header", answer_forever(b"HTTP/1.1 200 OK\r\nA: ", b"b" * 4096), Outcome.PROTOCOL_ERROR, RESPONSE),
    Case("garbage", answer_and_stay(bytes(range(256))), Outcome.PROTOCOL_ERROR, RESPONSE),
    Case("another protocol", answer_and_stay(b"SSH-2.0-OpenSSH_9.2\r\n"), Outcome.PROTOCOL_ERROR, RESPONSE),
    Case("bad status line", answer_and_stay(b"HTTP/1.1 OK\r\n\r\n"), Outcome.PROTOCOL_ERROR, RESPONSE),
    Case("cut headers", answer(b"HTTP/1.1 200 OK\r\nA"), Outcome.PROTOCOL_ERROR, RESPONSE),
    Case("cut body", answer(text(200, b"203", b"Content-Length: 9")), Outcome.PROTOCOL_ERROR, RESPONSE, 200),
    Case("cut chunk", answer(text(200, b"9\r\n203", CHUNKED)), Outcome.PROTOCOL_ERROR, RESPONSE, 200),
    Case("bad chunk", answer(text(200, b"z\r\n203", CHUNKED)), Outcome.PROTOCOL_ERROR, RESPONSE, 200),
    Case("bad length", answer(text(200, b"", b"Content-Length: -1")), Outcome.PROTOCOL_ERROR, RESPONSE, 200),
    Case("close", close_after_request, Outcome.PROTOCOL_ERROR, RESPONSE),
]

WITHOUT_TLS = [
    Case("half close", half_close_after_request, Outcome.PROTOCOL_ERROR, RESPONSE),
    Case("close at once", close_at_once, Outcome.PROTOCOL_ERROR, RESPONSE),
    Case("reset at once", reset_at_once, Outcome.PROTOCOL_ERROR, RESPONSE),
    Case("reset", reset_after_request, Outcome.PROTOCOL_ERROR, RESPONSE),
    Case("authentication", answer(text(407)), Outcome.PROXY_AUTH_REQUIRED, RESPONSE, 407),
]

IN_THE_TUNNEL = [
    Case("authentication of the target's proxy", answer(text(407)), Outcome.BAD_STATUS, RESPONSE, 407),
]

TUNNELS = [
    Case("authentication", answer_and_stay(text(407)), Outcome.PROXY_AUTH_REQUIRED, TUNNEL, 407),
    Case("forbidden", answer_and_stay(text(403)), Outcome.TUNNEL_REFUSED, TUNNEL, 403),
    Case("bad gateway with a body", answer(text(502, b"<h1>no</h1>" * 99)), Outcome.TUNNEL_REFUSED, TUNNEL, 502),
    Case("redirect", answer(text(302)), Outcome.TUNNEL_REFUSED, TUNNEL, 302),
    Case("switching protocols", answer_and_stay(text(101)), Outcome.TUNNEL_REFUSED, TUNNEL, 101),
    Case("close", close_after_request, Outcome.TUNNEL_REFUSED, TUNNEL),
    Case("close at once", close_at_once, Outcome.TUNNEL_REFUSED, TUNNEL),
    Case("reset at once", reset_at_once, Outcome.TUNNEL_REFUSED, TUNNEL),
    Case("reset", reset_after_request, Outcome.TUNNEL_REFUSED, TUNNEL),
    Case("half close", half_close_after_request, Outcome.TUNNEL_REFUSED, TUNNEL),
    Case("cut headers", answer(b"HTTP/1.1 200 OK\r\n"), Outcome.PROTOCOL_ERROR, TUNNEL),
    Case("garbage", answer_and_stay(b"\x00\xff" * 200), Outcome.PROTOCOL_ERROR, TUNNEL),
    Case("HTTP/2", answer_and_stay(b"HTTP/2 200\r\n\r\n"), Outcome.PROTOCOL_ERROR, TUNNEL),
    Case("endless headers", answer_forever(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 99), Outcome.PROTOCOL_ERROR, TUNNEL),
    Case("silent", stay_silent, Outcome.TIMEOUT, TUNNEL),
    Case("slow drip", drip(CONSENT), Outcome.TIMEOUT, TUNNEL),
    Case("TLS: silent", answer_and_stay(CONSENT), Outcome.TIMEOUT, TLS, 200),
    Case("TLS: garbage", consent_then(b"\x00" * 512), Outcome.TLS_FAILED, TLS, 200),
    Case("TLS: plain HTTP", consent_then(NO_CONTENT), Outcome.TLS_FAILED, TLS, 200),
    Case(
        "TLS: consent with a body",
        answer_and_stay(text(200, b"hello", b"Content-Length: 5")),
        Outcome.TLS_FAILED,
        TLS,
        200,
    ),
    Case("TLS: close", consent_then_close, Outcome.TLS_FAILED, TLS, 200),
    Case("TLS: reset", consent_then_reset, Outcome.TLS_FAILED, TLS, 200),
]

CONSENTS = [
    CONSENT,
    b"HTTP/1.0 200 Connection established\r\nProxy-agent: old/1.0\r\n\r\n",
    b"HTTP/1.1 200\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nVia: 1.1 a, 1.1 b\r\nX-Cache: MISS\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
]


async def through(
    script: Script, certificates: Certificates, *, url: str, timeout: float, host: str = "127.0.0.1"
) -> ProbeResult[int]:
    """Probe a proxy that behaves as ``script``."""
    async with serving(script, host=host) as proxy:
        return await probe(_request(proxy.port, url=url, timeout=timeout, host=host), certificates.prober)


def _request(port: int, *, url: str, timeout: float = LONG, host: str = "127.0.0.1", key: int = 7) -> ProbeRequest[int]:
    credentials = ProxyCredentials("crawler", PASSWORD)
    return ProbeRequest(key, host, port, url, timeout, credentials=credentials)


@by_id([*RESPONSES, *WITHOUT_TLS])
def test_plain_forward(case: Case, certificates: Certificates) -> None:
    case.check(asyncio.run(through(case.script, certificates, url="http://target.example/", timeout=case.timeout)))


@by_id(TUNNELS)
def test_tunnel(case: Case, certificates: Certificates) -> None:
    case.check(asyncio.run(through(case.script, certificates, url="https://target.example/", timeout=case.timeout)))


@by_id([*RESPONSES, *IN_THE_TUNNEL])
def test_target_behind_a_tunnel(case: Case, certificates: Certificates) -> None:
    async def run() -> ProbeResult[int]:
        async with serving(case.script, tls=certificates.trusted) as target:
            url = f"https://localhost:{target.port}/"
            return await through(tunnel(), certificates, url=url, timeout=case.timeout)

    result = asyncio.run(run())
    expected = case if case.status is not None else Case(case.id, case.script, case.outcome, case.stage, 200)
    expected.check(result)
    assert list(result.seconds) == [Stage.CONNECT, Stage.TUNNEL, Stage.TLS, Stage.RESPONSE]


@pytest.mark.parametrize("consent", CONSENTS)
def test_consents_to_a_tunnel(consent: bytes, certificates: Certificates) -> None:
    async def run() -> ProbeResult[int]:
        async with serving(answer(WHOAMI), tls=certificates.trusted) as target:
            url = f"https://localhost:{target.port}/"
            return await through(tunnel(consent=consent), certificates, url=url, timeout=LONG)

    assert asyncio.run(run()).egress_ip == "203.0.113.9"


@pytest.mark.parametrize("flaw", ["untrusted", "for_another_host"])
def test_certificate_that_does_not_hold(flaw: str, certificates: Certificates) -> None:
    async def run() -> ProbeResult[int]:
        async with serving(answer(WHOAMI), tls=getattr(certificates, flaw)) as target:
            return await through(tunnel(), certificates, url=f"https://localhost:{target.port}/", timeout=LONG)

    result = asyncio.run(run())
    assert (result.outcome, result.stage) == (Outcome.TLS_FAILED, Stage.TLS)
    assert "certificate" in result.message


def test_ipv6_proxy_and_target(certificates: Certificates) -> None:
    async def run() -> ProbeResult[int]:
        async with serving(answer(WHOAMI), tls=certificates.trusted, host="::1") as target:
            url = f"https://[::1]:{target.port}/"
            return await through(tunnel(), certificates, url=url, timeout=LONG, host="::1")

    assert asyncio.run(run()).is_ok


def test_requests_on_the_wire(certificates: Certificates) -> None:
    async def run() -> tuple[list[bytes], list[bytes]]:
        async with (
            serving(answer(NO_CONTENT), tls=certificates.trusted) as target,
            serving(tunnel()) as proxy,
            serving(answer(NO_CONTENT)) as forwarder,
        ):
            url = f"https://localhost:{target.port}/a?b=c"
            await probe(_request(proxy.port, url=url), certificates.prober)
            await probe(_request(forwarder.port, url="http://target.example/a?b=c"), certificates.prober)
            connect = proxy.heads[0].replace(str(target.port).encode(), b"PORT")
            return [connect, forwarder.heads[0]], target.heads

    (connect, forward), [get] = asyncio.run(run())
    authorization = b"Proxy-Authorization: Basic Y3Jhd2xlcjpjb3JyZWN0LWhvcnNlLWJhdHRlcnk=\r\n"
    assert connect.startswith(b"CONNECT localhost:PORT HTTP/1.1\r\nHost: localhost:PORT\r\n")
    assert authorization in connect
    assert get.startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert b"authorization" not in get.lower()
    assert forward.startswith(b"GET http://target.example/a?b=c HTTP/1.1\r\nHost: target.example\r\n")
    assert authorization in forward


@pytest.mark.parametrize(
    ("status", "expected", "outcome"),
    [(404, frozenset({404, 410}), Outcome.OK), (200, frozenset({404}), Outcome.BAD_STATUS)],
)
def test_expected_status(status: int, expected: frozenset[int], outcome: Outcome, certificates: Certificates) -> None:
    async def run() -> ProbeResult[int]:
        async with serving(answer(text(status))) as proxy:
            request = ProbeRequest(1, "127.0.0.1", proxy.port, "http://target.example/", LONG, expected_status=expected)
            return await probe(request, certificates.prober)

    assert asyncio.run(run()).outcome is outcome


def _unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "outcome", "hint"),
    [
        ("127.0.0.1", Outcome.CONNECT_REFUSED, "nothing listens"),
        ("localhost", Outcome.CONNECT_REFUSED, "nothing listens"),
        ("no-such-proxy.invalid", Outcome.CONNECT_FAILED, "does not resolve"),
        ("not..a.name", Outcome.CONNECT_FAILED, "does not resolve"),
        ("169.254.169.254", Outcome.CONNECT_FAILED, "never probed"),
        ("::ffff:169.254.169.254", Outcome.CONNECT_FAILED, "never probed"),
        ("2852039166", Outcome.CONNECT_FAILED, "never probed"),  # the same, as the C library reads it
        ("fe80::1%lo", Outcome.CONNECT_FAILED, "never probed"),
        ("fd00:ec2::254", Outcome.CONNECT_FAILED, "never probed"),
        ("64:ff9b::a9fe:a9fe", Outcome.CONNECT_FAILED, "never probed"),  # the same by NAT64
        ("100.100.100.200", Outcome.CONNECT_FAILED, "never probed"),
    ],
)
def test_proxy_that_is_not_reached(host: str, outcome: Outcome, hint: str, certificates: Certificates) -> None:
    request = _request(_unused_port(), url="https://target.example/", host=host)
    result = asyncio.run(probe(request, certificates.prober))
    assert (result.outcome, result.stage) == (outcome, Stage.CONNECT)
    assert hint in result.message


@pytest.mark.parametrize(("host", "hint"), [("localhost", "never probed"), ("127.0.0.1", "nothing listens")])
def test_where_names_must_be_public_an_address_of_a_provider_need_not_be(
    host: str, hint: str, certificates: Certificates
) -> None:
    request = replace(_request(_unused_port(), url="https://target.example/", host=host), public_names=True)
    assert hint in asyncio.run(probe(request, certificates.prober)).message


@pytest.mark.parametrize(
    "url", ["ftp://target.example/", "https://a:b@target.example/", "https://", "https://" + "a" * 64]
)
def test_url_that_can_not_be_fetched(url: str, certificates: Certificates) -> None:
    result = asyncio.run(probe(_request(1, url=url), certificates.prober))
    assert result.outcome is Outcome.PROTOCOL_ERROR
    assert "healthCheck.url" in result.message


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_credentials_show_nowhere(scheme: str, certificates: Certificates) -> None:
    """Not even when a proxy repeats what it was sent."""
    echo = b"HTTP/1.1 502 " + PASSWORD.encode() + b"\r\nX: " + PASSWORD.encode() + b"\r\n\r\n"
    request = _request(1, url=f"{scheme}://target.example/")
    result = asyncio.run(through(answer(echo), certificates, url=request.url, timeout=LONG))
    assert result.status == 502
    assert PASSWORD not in f"{request!r} {request.credentials!r} {result!r}"


def test_accept_queue_that_is_full(certificates: Certificates) -> None:
    """A listener that never accepts answers no more handshakes once its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(8)]
        try:
            for filler in fillers:
                filler.settimeout(0)
                filler.connect_ex(address)
            request = _request(address[1], url="https://target.example/", timeout=SHORT)
            result = asyncio.run(probe(request, certificates.prober))
        finally:
            for filler in fillers:
                filler.close()
    assert (result.outcome, result.stage) == (Outcome.TIMEOUT, Stage.CONNECT)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG):
        while not condition():
            await asyncio.sleep(0.01)


def _open_sockets() -> set[str]:
    """Each by its inode: a number alone may hide a leak behind something older that was collected meanwhile."""
    targets = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the folder's own, closed since it was listed
            targets.add(str(descriptor.readlink()))
    return {target for target in targets if target.startswith("socket:")}


def test_nothing_is_left_behind(certificates: Certificates) -> None:
    """Probes that fail in every way, 500 at least, and as many that are cancelled midway."""
    faults = [(case, "https") for case in TUNNELS]
    faults += [(case, "http") for case in [*RESPONSES, *WITHOUT_TLS] if case.outcome is not Outcome.OK]

    async def run() -> None:
        async with contextlib.AsyncExitStack() as proxies:
            running = [await proxies.enter_async_context(serving(case.script)) for case, _ in faults]
            requests = [
                _request(proxy.port, url=f"{scheme}://target.example/", timeout=case.timeout, key=number)
                for number, (proxy, (case, scheme)) in enumerate(zip(running, faults, strict=True))
            ]
            requests *= 500 // len(faults) + 1
            before = _open_sockets()

            results: list[ProbeResult[int]] = []
            places = asyncio.Semaphore(50)

            async def probe_in_turn(request: ProbeRequest[int]) -> None:
                async with places:
                    results.append(await probe(request, certificates.prober))

            await asyncio.gather(*map(probe_in_turn, requests))
            assert len(results) == len(requests)
            differing = [
                (result, faults[result.key])
                for result in results
                if result.outcome is not faults[result.key][0].outcome
            ]
            assert not differing

            with Probes[int](certificates.prober, active=100, open_at_most=100) as cut_off:
                cut_off.start(requests)
                await _until(lambda: any(proxy.connections for proxy in running))

            await _until(lambda: not any(proxy.connections for proxy in running))
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert _open_sockets() <= before

    asyncio.run(run())


@pytest.mark.parametrize("scheme", ["http", "https"])
@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.sampled_from(
        [b"", b"HTTP/1.1 200 OK\r\n", CONSENT, b"HTTP/1.0 407 ", text(200, b"", CHUNKED), text(200, b"{")]
    ),
    rest=st.binary(max_size=300),
    stays=st.booleans(),
)
def test_arbitrary_bytes_are_an_outcome(
    certificates: Certificates, scheme: str, start: bytes, rest: bytes, stays: bool
) -> None:
    script = (answer_and_stay if stays else answer)(start + rest)
    began = time.perf_counter()
    result = asyncio.run(through(script, certificates, url=f"{scheme}://target.example/", timeout=0.05))
    assert time.perf_counter() - began < SLACK
    assert result.outcome in Outcome
    assert "\n" not in result.message


def test_descriptors_running_out_is_no_verdict_on_the_proxy(certificates: Certificates) -> None:
    async def run() -> None:
        async with serving(answer(WHOAMI)) as proxy:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                await probe(_request(proxy.port, url="http://target.example/"), certificates.prober)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with pytest.raises(OSError, match="Too many open files"):
        asyncio.run(run())


def test_authorities_file(tmp_path: Path) -> None:
    not_pem = tmp_path / "ca.pem"
    not_pem.write_text("hello")
    with pytest.raises(ValueError, match=r"ca\.pem is not a PEM file"):
        tls_context(not_pem)
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        tls_context(tmp_path / "missing.pem")

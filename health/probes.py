"""Fetch a URL through a proxy and say how far it went. Outcomes are data, not exceptions.

Whatever the peer does, a probe ends by its deadline, holds little memory, leaves no socket or task behind, and repeats
nothing that the peer sent: an echo of the credentials can't reach a message.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

from health.connections import ForbiddenAddressError, UnresolvedHostError, connect
from health.http1 import (
    Head,
    HTTPFormatError,
    Target,
    basic_authorization,
    complete_body,
    connect_request,
    forwarded_get,
    parse_target,
    split_head,
    tunnelled_get,
)
from health.results import Key, Outcome, ProbeRequest, ProbeResult, Stage
from health.streams import FloodError, HangUpError, SocketStream, Stream, TLSStream
from health.whoami import read_answer

_HEAD_LIMIT_BYTES = 64 * 1024
_BODY_LIMIT_BYTES = 4 * 1024
"""More than any answer that tells an address; a longer body is left unread."""
_PROBE_LIMIT_BYTES = 256 * 1024
"""All that is read from the network in one probe: two heads, a certificate chain and a short body fit well."""

_OUR_OWN_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """The context that all probes share: the system's authorities, and those in ``ca_file`` (PEM) if given.

    Building one costs as much as 25 probes. Raises OSError when the file can't be read, ValueError when it holds no
    certificates.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cadata=ca_file.read_text(encoding="ascii"))
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise ValueError(f"{ca_file} is not a PEM file of CA certificates") from error
    return context


async def probe(request: ProbeRequest[Key], tls: ssl.SSLContext) -> ProbeResult[Key]:
    """Fetch ``request.url`` through the proxy: CONNECT, TLS and GET for https, a forwarded GET for http.

    Raises OSError only when this machine has no descriptors or memory left, which says nothing about the proxy.
    """
    try:
        target = parse_target(request.url)
    except ValueError as error:
        return ProbeResult(request.key, Outcome.PROTOCOL_ERROR, Stage.CONNECT, {}, str(error), url=request.url)
    attempt = _Attempt(request, target, tls)
    outcome, message = Outcome.OK, ""
    try:
        async with asyncio.timeout(request.timeout_seconds):
            await attempt.run()
    except TimeoutError:
        outcome, message = Outcome.TIMEOUT, attempt.explain_timeout()
    except _ProbeFailedError as failure:
        outcome, message = failure.outcome, failure.message
    return ProbeResult(
        key=request.key,
        outcome=outcome,
        stage=attempt.stage,
        seconds=attempt.close_books(),
        message=message,
        status=attempt.status,
        egress_ip=attempt.egress_ip,
        leaking_headers=attempt.leaking_headers,
        url=request.url,
    )


class _ProbeFailedError(Exception):
    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message


class _Attempt:
    """One run of a probe, and what is known of it so far: it may be cut off at any moment."""

    def __init__(self, request: ProbeRequest[Key], target: Target, tls: ssl.SSLContext) -> None:
        self.stage = Stage.CONNECT
        self.status: int | None = None
        self.egress_ip: str | None = None
        self.leaking_headers: tuple[str, ...] | None = None
        self._own_address = ""
        self._request = request
        self._tls = tls
        self._target = target
        self._proxy = f"the proxy {request.proxy_host} port {request.proxy_port}"
        self._seconds: dict[Stage, float] = {}
        self._stage_began = time.perf_counter()

    async def run(self) -> None:
        deadline = asyncio.get_running_loop().time() + self._request.timeout_seconds
        try:
            with await connect(
                self._request.proxy_host,
                self._request.proxy_port,
                deadline=deadline,
                public_names=self._request.public_names,
            ) as sock:
                self._own_address = sock.getsockname()[0]
                await self._fetch(SocketStream(sock, budget=_PROBE_LIMIT_BYTES))
        except (TimeoutError, _ProbeFailedError):
            raise
        except ForbiddenAddressError:
            self._fail(Outcome.CONNECT_FAILED, f"{self._proxy} is at an address that is never probed")
        except UnresolvedHostError:
            self._fail(Outcome.CONNECT_FAILED, f"the name of {self._proxy} does not resolve")
        except ssl.SSLCertVerificationError as error:
            self._fail(Outcome.TLS_FAILED, f"the certificate of {self._target.host} failed: {error.verify_message}")
        except ssl.SSLError as error:
            self._fail(Outcome.TLS_FAILED, f"TLS with {self._target.host} failed: {error.reason or 'protocol error'}")
        except HTTPFormatError as error:
            self._fail(Outcome.PROTOCOL_ERROR, f"{self._answerer}: {error}")
        except FloodError:
            self._fail(Outcome.PROTOCOL_ERROR, f"{self._answerer}: more than {_PROBE_LIMIT_BYTES} bytes in one probe")
        except (HangUpError, OSError) as error:
            self._fail_connection(error)

    async def _fetch(self, stream: Stream) -> None:
        authorization = None
        if (credentials := self._request.credentials) is not None:
            authorization = basic_authorization(credentials.username, credentials.password)
        if self._target.is_tls:
            self._enter(Stage.TUNNEL)
            await stream.send(connect_request(self._target, proxy_authorization=authorization))
            early = await self._read_tunnel_answer(stream)
            self._enter(Stage.TLS)
            session = TLSStream(stream, early=early, context=self._tls, server_hostname=self._target.host)
            await session.handshake()
            stream = session
            request = tunnelled_get(self._target)
        else:
            request = forwarded_get(self._target, proxy_authorization=authorization)
        self._enter(Stage.RESPONSE)
        await stream.send(request)
        await self._read_response(stream)

    async def _read_tunnel_answer(self, stream: Stream) -> bytes:
        """The bytes behind a proxy's consent: they belong to the tunnel, whatever its headers say (RFC 9110, 9.3.6)."""
        head, rest = await self._read_head(stream)
        if head.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            self._fail_authentication()
        if not 200 <= head.status < 300:
            self._fail(Outcome.TUNNEL_REFUSED, f"{self._proxy} answered CONNECT with {_describe(head.status)}")
        return rest

    async def _read_response(self, stream: Stream) -> None:
        head, rest = await self._read_head(stream)
        if head.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED and not self._target.is_tls:
            self._fail_authentication()
        if not self._request.expects(head.status):
            self._fail(Outcome.BAD_STATUS, f"{self._answerer} answered with {_describe(head.status)}")
        if head.may_tell_address:
            told = read_answer(await _read_body(stream, head, rest), own_address=self._own_address)
            self.egress_ip = told.egress_ip
            if not self._target.is_tls:  # inside TLS no proxy can add a header: none proves nothing
                self.leaking_headers = told.leaking_headers

    async def _read_head(self, stream: Stream) -> tuple[Head, bytes]:
        """The next final head, interim ones skipped, and the bytes behind it."""
        data, searched, total = b"", 0, 0
        while True:
            split = split_head(data, searched=searched)
            if split is None:
                searched = len(data)
                if total > _HEAD_LIMIT_BYTES:
                    raise HTTPFormatError(f"headers of more than {_HEAD_LIMIT_BYTES} bytes")
                received = await stream.receive()
                if not received and total:
                    raise HTTPFormatError("the answer ended in the middle of its headers")
                if not received:
                    raise HangUpError
                data += received
                total += len(received)
                continue
            head, data = split
            searched = 0
            self.status = head.status
            if not head.is_interim:
                return head, data

    def _enter(self, stage: Stage) -> None:
        now = time.perf_counter()
        self._seconds[self.stage] = now - self._stage_began
        self.stage = stage
        self._stage_began = now

    def close_books(self) -> Mapping[Stage, float]:
        self._enter(self.stage)
        return self._seconds

    def explain_timeout(self) -> str:
        awaited = {
            Stage.CONNECT: f"{self._proxy} did not accept the connection",
            Stage.TUNNEL: f"{self._proxy} did not answer CONNECT",
            Stage.TLS: f"the TLS handshake with {self._target.host} did not end",
            Stage.RESPONSE: f"{self._answerer} sent no complete response",
        }
        return f"{awaited[self.stage]} within {self._request.timeout_seconds:g} s"

    @property
    def _answerer(self) -> str:
        return self._proxy if self.stage is Stage.TUNNEL else f"{self._target.host} through the proxy"

    def _fail_connection(self, error: HangUpError | OSError) -> NoReturn:
        if isinstance(error, OSError) and error.errno in _OUR_OWN_SHORTAGES:
            raise error
        if self.stage is Stage.CONNECT:
            if isinstance(error, ConnectionRefusedError):
                self._fail(Outcome.CONNECT_REFUSED, f"nothing listens at {self._proxy}")
            self._fail(Outcome.CONNECT_FAILED, f"{self._proxy} can't be reached: {getattr(error, 'strerror', '')}")
        if self.stage is Stage.TUNNEL:
            self._fail(Outcome.TUNNEL_REFUSED, f"{self._proxy} hung up on CONNECT")
        if self.stage is Stage.TLS:
            self._fail(Outcome.TLS_FAILED, f"the tunnel to {self._target.host} closed during the TLS handshake")
        self._fail(Outcome.PROTOCOL_ERROR, f"{self._answerer} closed the connection without a response")

    def _fail_authentication(self) -> NoReturn:
        offered = "did not accept the credentials" if self._request.credentials else "requires credentials"
        self._fail(Outcome.PROXY_AUTH_REQUIRED, f"{self._proxy} {offered}")

    def _fail(self, outcome: Outcome, message: str) -> NoReturn:
        raise _ProbeFailedError(outcome, message)


async def _read_body(stream: Stream, head: Head, data: bytes) -> bytes:
    """The whole body, or nothing of one that is too long to be an address."""
    at_end = False
    while (body := complete_body(head, data, at_end=at_end)) is None:
        if len(data) > _BODY_LIMIT_BYTES:
            return b""
        received = await stream.receive()
        data += received
        at_end = not received
    return body


def _describe(status: int) -> str:
    """Our own words for a status: the peer's could be anything."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)

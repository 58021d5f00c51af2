"""The API's calls as values, and what to do with their answers: no I/O, so that both fleets share every rule."""

from __future__ import annotations

import os
import random
import socket
import uuid
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import httpx

from proxyfleet_client.errors import FleetError, NoProxyAvailable, Unreachable, refusal
from proxyfleet_client.outcomes import Result

PATIENCE_SECONDS = 30.0
"""For how long a call is tried again while the API does not answer, or asks for time."""
CALL_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 5.0

Selector = Mapping[str, str] | str


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    """Sent twice, it does no more than once."""
    patience: float | None = None
    """Seconds to go on trying; the fleet's, when left out."""
    wait_for_proxy: float = 0
    """Seconds to go on asking while no proxy is available."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Reply = httpx.Response | httpx.TransportError


def acquire(
    *,
    selector: Selector,
    target: str | None,
    ttl: int | None,
    client: str | None,
    exclude: Collection[str],
    wait: float,
) -> Call:
    """``wait`` is how many seconds to go on asking while no proxy is available."""
    body = {
        "selector": selector if isinstance(selector, str) else dict(selector),
        "target": target,
        "ttlSeconds": ttl,
        "client": client if client is not None else f"{socket.gethostname()}/{os.getpid()}"[:100],
        "exclude": list(exclude),
    }
    said = {name: value for name, value in body.items() if value is not None}
    # One key for all tries: a grant whose answer was lost is given again, not granted twice.
    return Call("POST", "leases", said, {"Idempotency-Key": str(uuid.uuid4())}, wait_for_proxy=wait)


def renew(lease_id: str, ttl: float, *, patience: float) -> Call:
    return Call("POST", f"leases/{lease_id}/renew", {"ttlSeconds": max(1, round(ttl))}, patience=patience)


def report(lease_id: str, result: Result, *, target: str | None, cooldown: int | None) -> Call:
    body = {"result": str(result), "target": target, "cooldownSeconds": cooldown}
    said = {name: value for name, value in body.items() if value is not None}
    return Call("POST", f"leases/{lease_id}/report", said, repeatable=False)


def release(lease_id: str) -> Call:
    return Call("DELETE", f"leases/{lease_id}")


def exchange(call: Call, patience: float) -> Generator[Call | Pause, Reply | None, Any]:
    """Yields what to do next: send the call, or pause. Returns the answer's body, None when it has none.

    ``patience`` is how many seconds to go on trying while the API does not answer or asks for time.

    Raises Unreachable, Refused and its kinds.
    """
    begun = monotonic()
    tries = 0
    while True:
        tries += 1
        reply = yield call
        assert reply is not None
        pause, longest = _backoff(tries), patience if call.patience is None else call.patience
        problem: FleetError
        if isinstance(reply, httpx.TransportError):
            problem = Unreachable(f"{call.method} {call.path}: {reply or type(reply).__name__}")
            problem.__cause__ = reply
            if not call.repeatable and not isinstance(reply, httpx.ConnectError | httpx.ConnectTimeout):
                raise problem
        elif reply.is_success:
            return reply.json() if reply.content else None
        else:
            problem = refused = refusal(_problem(reply), _retry_after(reply))
            if isinstance(refused, NoProxyAvailable):
                # A lease that is released frees one sooner than what the API can foresee.
                pause, longest = min(refused.retry_after or 1, LONGEST_PAUSE_SECONDS), call.wait_for_proxy
            elif reply.status_code in (429, 503):
                pause = refused.retry_after or pause
            else:
                raise problem
        left = begun + longest - monotonic()
        if left <= 0 or (pause > left and not isinstance(problem, NoProxyAvailable)):
            raise problem
        yield Pause(min(pause, left))


def _backoff(tries: int) -> float:
    return min(0.1 * 2.0 ** min(tries - 1, 10), LONGEST_PAUSE_SECONDS) * random.uniform(0.5, 1)


def _problem(reply: httpx.Response) -> Mapping[str, Any]:
    """What came from something in between, a gateway say, is no problem document."""
    try:
        problem = reply.json()
    except ValueError:
        problem = None
    if isinstance(problem, dict):
        return {"status": reply.status_code, **problem}
    return {"status": reply.status_code, "detail": f"status {reply.status_code} {reply.reason_phrase}"}


def _retry_after(reply: httpx.Response) -> float | None:
    value = reply.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None

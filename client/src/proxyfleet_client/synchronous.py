"""The fleet for threads."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from types import TracebackType
from typing import Any, Self

import httpx

from proxyfleet_client import calls
from proxyfleet_client.access import Access
from proxyfleet_client.calls import Call, Pause, Reply, Selector
from proxyfleet_client.errors import FleetError
from proxyfleet_client.leases import HeldLease
from proxyfleet_client.outcomes import Result
from proxyfleet_client.renewal import Renewer

logger = logging.getLogger(__name__)


class Lease(HeldLease):
    """Taken when its ``with`` block begins, which raises NoProxyAvailable, Refused or Unreachable."""

    def __init__(self, fleet: Fleet, wanted: Call) -> None:
        super().__init__(wanted)
        self._fleet = fleet

    def report(self, result: Result, *, target: str | None = None, cooldown: int | None = None) -> None:
        """Tell the fleet now. ``cooldown`` is in seconds; the target of the lease holds when none is named.

        Raises LeaseEnded, Refused, Unreachable.
        """
        self._fleet.call(calls.report(self.grant.lease_id, result, target=target, cooldown=cooldown))
        self.result = None

    def __enter__(self) -> Self:
        self._granted(self._fleet.call(self._wanted))
        self._fleet.renewer.watch(self)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._fleet.renewer.forget(self)
        if error is not None:
            self.observe_error(error)
        try:
            if self.result is not None and self.ended is None:
                self.report(self.result)
        except FleetError as problem:
            logger.warning("The outcome of lease %s was not reported: %s", self, problem)
        try:
            self._fleet.call(calls.release(self.grant.lease_id))
        except FleetError as problem:
            logger.warning("Lease %s was not released, and will expire: %s", self, problem)


class Fleet(Access):
    """The API of a fleet. Safe to share between threads; keeps its connections until it is closed."""

    def __init__(
        self,
        api: str,
        token: str | None = None,
        *,
        patience: float = calls.PATIENCE_SECONDS,
        http: httpx.Client | None = None,
    ) -> None:
        """As Access says; ``http`` replaces the HTTP client."""
        super().__init__(api, token, patience=patience)
        # What the environment says of proxies is meant for targets.
        self._http = http or httpx.Client(timeout=calls.CALL_SECONDS, trust_env=False)
        self.renewer = Renewer(self)

    def lease(
        self,
        *,
        selector: Selector | None = None,
        target: str | None = None,
        ttl: int | None = None,
        client: str | None = None,
        exclude: Collection[str] = (),
        wait: float = 0,
        **attributes: str,
    ) -> Lease:
        """A lease on a proxy with these attributes (or by ``selector``), that works for ``target``.

        For a ``with`` block. ``ttl`` is in seconds, the API's default when left out, and renewed as long as the block
        runs. ``wait`` is for how many seconds to go on asking while no proxy is available.
        """
        wanted = calls.acquire(
            selector=selector if selector is not None else attributes,
            target=target,
            ttl=ttl,
            client=client,
            exclude=exclude,
            wait=wait,
        )
        return Lease(self, wanted)

    def call(self, call: Call) -> Any:
        """The answer's body. Raises Refused and its kinds, and Unreachable."""
        steps = calls.exchange(call, self._patience)
        reply: Reply | None = None
        try:
            while True:
                step = steps.send(reply)
                reply = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    reply = self._send(step)
        except StopIteration as answered:
            return answered.value

    def _send(self, call: Call) -> Reply:
        try:
            return self._http.request(
                call.method,
                self._api + call.path,
                json=call.body,
                params=call.params,
                headers={**self._headers, **call.headers},
            )
        except httpx.TransportError as error:
            return error

    def close(self) -> None:
        self.renewer.close()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

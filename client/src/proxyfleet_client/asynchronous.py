"""The fleet for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from types import TracebackType
from typing import Any, Self

import httpx

from proxyfleet_client import calls
from proxyfleet_client.access import Access
from proxyfleet_client.calls import Call, Pause, Reply, Selector
from proxyfleet_client.errors import FleetError, Refused, Unreachable
from proxyfleet_client.leases import HeldLease
from proxyfleet_client.outcomes import Result

logger = logging.getLogger(__name__)


class AsyncLease(HeldLease):
    """Taken when its ``async with`` block begins, which raises NoProxyAvailable, Refused or Unreachable."""

    def __init__(self, fleet: AsyncFleet, wanted: Call) -> None:
        super().__init__(wanted)
        self._fleet = fleet
        self._renewal: asyncio.Task[None] | None = None

    async def report(self, result: Result, *, target: str | None = None, cooldown: int | None = None) -> None:
        """Tell the fleet now. ``cooldown`` is in seconds; the target of the lease holds when none is named.

        Raises LeaseEnded, Refused, Unreachable.
        """
        await self._fleet.call(calls.report(self.grant.lease_id, result, target=target, cooldown=cooldown))
        self.result = None

    async def open(self) -> None:
        """Take the lease, for code that no ``async with`` block fits; ``close`` gives it back."""
        self._granted(await self._fleet.call(self._wanted))
        self._renewal = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Report what was observed and give the proxy back."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])
        try:
            if self.result is not None and self.ended is None:
                await self.report(self.result)
        except FleetError as problem:
            logger.warning("The outcome of lease %s was not reported: %s", self, problem)
        try:
            await self._fleet.call(calls.release(self.grant.lease_id))
        except FleetError as problem:
            logger.warning("Lease %s was not released, and will expire: %s", self, problem)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if error is not None:
            self.observe_error(error)
        await self.close()

    async def _keep(self) -> None:
        while self.ended is None:
            await asyncio.sleep(self.renewal_pause)
            renewal = calls.renew(self.grant.lease_id, self.grant.ttl, patience=self.renewal_pause / 2)
            try:
                await self._fleet.call(renewal)
            except (Refused, Unreachable) as problem:
                self.renewal_failed(problem)


class AsyncFleet(Access):
    """The API of a fleet. Keeps its connections until it is closed; belongs to one event loop."""

    def __init__(
        self,
        api: str,
        token: str | None = None,
        *,
        patience: float = calls.PATIENCE_SECONDS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """As Access says; ``http`` replaces the HTTP client."""
        super().__init__(api, token, patience=patience)
        # What the environment says of proxies is meant for targets.
        self._http = http or httpx.AsyncClient(timeout=calls.CALL_SECONDS, trust_env=False)

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
    ) -> AsyncLease:
        """A lease on a proxy with these attributes (or by ``selector``), that works for ``target``.

        For an ``async with`` block. ``ttl`` is in seconds, the API's default when left out, and renewed as long as
        the block runs. ``wait`` is for how many seconds to go on asking while no proxy is available.
        """
        return AsyncLease(
            self,
            calls.acquire(
                selector=selector if selector is not None else attributes,
                target=target,
                ttl=ttl,
                client=client,
                exclude=exclude,
                wait=wait,
            ),
        )

    async def call(self, call: Call) -> Any:
        """The answer's body. Raises Refused and its kinds, and Unreachable."""
        steps = calls.exchange(call, self._patience)
        reply: Reply | None = None
        try:
            while True:
                step = steps.send(reply)
                reply = None
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    reply = await self._send(step)
        except StopIteration as answered:
            return answered.value

    async def _send(self, call: Call) -> Reply:
        try:
            return await self._http.request(
                call.method,
                self._api + call.path,
                json=call.body,
                params=call.params,
                headers={**self._headers, **call.headers},
            )
        except httpx.TransportError as error:
            return error

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

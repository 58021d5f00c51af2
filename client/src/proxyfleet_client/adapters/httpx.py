"""httpx clients through a leased proxy."""

from __future__ import annotations

from ssl import SSLContext
from typing import Any

import httpx

from proxyfleet_client.leases import HeldLease


class _Observed(httpx.HTTPTransport):
    def __init__(self, lease: HeldLease, verify: SSLContext | bool) -> None:
        super().__init__(proxy=lease.url, verify=verify, trust_env=False)
        self._lease = lease

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            response = super().handle_request(request)
        except httpx.TransportError as error:
            self._lease.observe_error(error)
            raise
        self._lease.observe_status(response.status_code)
        return response


class _AsyncObserved(httpx.AsyncHTTPTransport):
    def __init__(self, lease: HeldLease, verify: SSLContext | bool) -> None:
        super().__init__(proxy=lease.url, verify=verify, trust_env=False)
        self._lease = lease

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            response = await super().handle_async_request(request)
        except httpx.TransportError as error:
            self._lease.observe_error(error)
            raise
        self._lease.observe_status(response.status_code)
        return response


def leased_client(lease: HeldLease, *, verify: SSLContext | bool = True, **options: Any) -> httpx.Client:
    """A client whose requests go through the proxy and are observed; ``options`` are those of httpx.Client."""
    return httpx.Client(transport=_Observed(lease, verify), trust_env=False, **options)


def leased_async_client(lease: HeldLease, *, verify: SSLContext | bool = True, **options: Any) -> httpx.AsyncClient:
    """The same for asyncio."""
    return httpx.AsyncClient(transport=_AsyncObserved(lease, verify), trust_env=False, **options)

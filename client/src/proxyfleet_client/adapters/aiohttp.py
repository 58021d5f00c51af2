"""An aiohttp session through a leased proxy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import aiohttp

from proxyfleet_client.leases import HeldLease


def leased_session(lease: HeldLease, **options: Any) -> aiohttp.ClientSession:
    """Everything it sends goes through the proxy and is observed; ``options`` are those of aiohttp.ClientSession."""

    async def answered(
        _session: aiohttp.ClientSession, _context: SimpleNamespace, end: aiohttp.TraceRequestEndParams
    ) -> None:
        lease.observe_status(end.response.status)

    async def failed(
        _session: aiohttp.ClientSession, _context: SimpleNamespace, end: aiohttp.TraceRequestExceptionParams
    ) -> None:
        lease.observe_error(end.exception)

    traces = aiohttp.TraceConfig()
    traces.on_request_end.append(answered)
    traces.on_request_exception.append(failed)
    return aiohttp.ClientSession(proxy=lease.url, trace_configs=[traces], **options)

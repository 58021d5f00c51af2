"""Fetch pages at the same time, each through a proxy of its own: with_httpx.py URL..."""

import asyncio
import sys
from urllib.parse import urlsplit

from proxyfleet_client import AsyncFleet
from proxyfleet_client.adapters.httpx import leased_async_client


async def fetch(fleet: AsyncFleet, url: str) -> None:
    async with (
        fleet.lease(target=urlsplit(url).hostname, wait=30) as lease,
        leased_async_client(lease, timeout=30) as client,
    ):
        response = await client.get(url)
        print(response.status_code, len(response.content), "bytes through", lease.grant.proxy.id)


async def main() -> None:
    async with AsyncFleet.from_environment() as fleet, asyncio.TaskGroup() as tasks:
        for url in sys.argv[1:]:
            tasks.create_task(fetch(fleet, url))


asyncio.run(main())

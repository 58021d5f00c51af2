"""Fetch pages one after the other through one leased proxy: with_aiohttp.py URL..."""

import asyncio
import sys
from urllib.parse import urlsplit

from proxyfleet_client import AsyncFleet
from proxyfleet_client.adapters.aiohttp import leased_session


async def main() -> None:
    async with (
        AsyncFleet.from_environment() as fleet,
        fleet.lease(target=urlsplit(sys.argv[1]).hostname, wait=30) as lease,
        leased_session(lease) as session,
    ):
        for url in sys.argv[1:]:
            async with session.get(url) as response:
                content = await response.read()
                print(response.status, len(content), "bytes through", lease.grant.proxy.id)


asyncio.run(main())

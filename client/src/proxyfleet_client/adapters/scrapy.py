"""A Scrapy downloader middleware: every request goes out through a leased proxy.

In the project's settings::

    DOWNLOADER_MIDDLEWARES = {"proxyfleet_client.adapters.scrapy.ProxyFleetMiddleware": 610}
    PROXYFLEET_API = "http://localhost:8090"
    PROXYFLEET_TOKEN = "…"

One lease per target is kept for as long as its proxy works. A request that the target refuses, or that its proxy loses,
is sent again through another proxy, at most ``PROXYFLEET_RETRIES`` times (5); the refused one rests for that target.
``PROXYFLEET_SELECTOR`` chooses the proxies. In seconds, ``PROXYFLEET_TTL`` is a lease's time to live,
``PROXYFLEET_COOLDOWN`` how long a refused proxy rests and ``PROXYFLEET_WAIT`` how long to wait while none is available.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.http import Request, Response
from scrapy.settings import BaseSettings

from proxyfleet_client.asynchronous import AsyncFleet, AsyncLease
from proxyfleet_client.outcomes import Result, of_exception, of_status

RETRIES = "proxyfleet_retries"

logger = logging.getLogger(__name__)


class ProxyFleetMiddleware:
    def __init__(self, fleet: AsyncFleet, settings: BaseSettings) -> None:
        self._fleet = fleet
        self._selector = settings.get("PROXYFLEET_SELECTOR", "")
        self._ttl = settings.getint("PROXYFLEET_TTL") or None
        self._cooldown = settings.getint("PROXYFLEET_COOLDOWN") or None
        self._wait = settings.getfloat("PROXYFLEET_WAIT", 60)
        self._retries = settings.getint("PROXYFLEET_RETRIES", 5)
        self._leases: dict[str, AsyncLease] = {}
        self._taking: dict[str, asyncio.Lock] = {}
        # Not in the requests' meta: it is copied to other requests, and pickled by a scheduler on disk.
        self._used: WeakKeyDictionary[Request, AsyncLease] = WeakKeyDictionary()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if not (api := crawler.settings.get("PROXYFLEET_API")):
            raise NotConfigured("PROXYFLEET_API is not set")
        middleware = cls(AsyncFleet(api, crawler.settings.get("PROXYFLEET_TOKEN")), crawler.settings)
        crawler.signals.connect(middleware.close, signal=signals.spider_closed)
        return middleware

    async def process_request(self, request: Request) -> None:
        target = _target_of(request)
        # Requests to one target wait for one lease, not each for its own.
        async with self._taking.setdefault(target, asyncio.Lock()):
            lease = self._leases.get(target)
            if lease is None or lease.ended is not None:
                lease = self._fleet.lease(selector=self._selector, target=target, ttl=self._ttl, wait=self._wait)
                await lease.open()
                self._leases[target] = lease
        request.meta["proxy"] = lease.url
        self._used[request] = lease

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        result = of_status(response.status)
        if result is Result.OK:
            self._used[request].observe(result)
            return response
        return await self._retry(request, result) or response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        result = of_exception(exception)
        return await self._retry(request, result) if result and request in self._used else None

    async def _retry(self, request: Request, result: Result) -> Request | None:
        """The request, to be sent through another proxy. None: it was tried often enough."""
        await self._give_back(_target_of(request), self._used[request], result)
        tries = request.meta.get(RETRIES, 0)
        if tries >= self._retries:
            logger.warning("%s was given up after %d proxies: %s", request.url, tries + 1, result)
            return None
        again = request.copy()
        again.dont_filter = True
        again.meta[RETRIES] = tries + 1
        return again

    async def _give_back(self, target: str, lease: AsyncLease, result: Result) -> None:
        """Once for each lease: of the requests that were under way through it, the first tells."""
        if self._leases.get(target) is lease:
            del self._leases[target]
            await lease.report(result, cooldown=self._cooldown if result is Result.RATE_LIMITED else None)
            await lease.close()

    async def close(self) -> None:
        for lease in self._leases.values():
            await lease.close()
        await self._fleet.close()


def _target_of(request: Request) -> str:
    return urlsplit(request.url).hostname or ""

"""How a crawl went, as the fleet wants to know it: from statuses and exceptions to a result. Pure."""

from __future__ import annotations

from enum import StrEnum


class Result(StrEnum):
    """What is reported of a lease. The first two rest the proxy for the target, the next two have it probed."""

    RATE_LIMITED = "rate_limited"
    BLOCKED = "blocked"
    TIMEOUT = "timeout"
    ERROR = "error"
    OK = "ok"


_BY_STATUS = {403: Result.RATE_LIMITED, 407: Result.ERROR, 429: Result.RATE_LIMITED}

# By name: the libraries need not be there.
_BY_EXCEPTION = {
    "builtins.TimeoutError": Result.TIMEOUT,
    "requests.exceptions.Timeout": Result.TIMEOUT,
    "httpx.TimeoutException": Result.TIMEOUT,
    "aiohttp.client_exceptions.ServerTimeoutError": Result.TIMEOUT,
    "scrapy.exceptions.DownloadTimeoutError": Result.TIMEOUT,
    "playwright._impl._errors.TimeoutError": Result.TIMEOUT,
    "twisted.internet.error.TimeoutError": Result.TIMEOUT,
    "builtins.ConnectionError": Result.ERROR,
    "requests.exceptions.ConnectionError": Result.ERROR,
    "httpx.TransportError": Result.ERROR,
    "aiohttp.client_exceptions.ClientConnectionError": Result.ERROR,
    "aiohttp.client_exceptions.ClientHttpProxyError": Result.ERROR,
    "scrapy.exceptions.DownloadConnectionRefusedError": Result.ERROR,
    "scrapy.exceptions.DownloadFailedError": Result.ERROR,
    "scrapy.exceptions.ResponseDataLossError": Result.ERROR,
    "twisted.internet.error.ConnectError": Result.ERROR,
    "twisted.internet.error.ConnectionLost": Result.ERROR,
    "scrapy.core.downloader.handlers.http11.TunnelError": Result.ERROR,
}


def of_status(status: int) -> Result:
    """What an answer through the proxy says of it; one that only the target is to blame for is fine."""
    return _BY_STATUS.get(status, Result.OK)


def of_exception(error: BaseException) -> Result | None:
    """What an exception says of the proxy. None: nothing, it is the crawler's own."""
    for kind in type(error).__mro__:
        if found := _BY_EXCEPTION.get(f"{kind.__module__}.{kind.__qualname__}"):
            return found
    return None


class Outcome:
    """The worst that was seen of a proxy while it was leased."""

    def __init__(self) -> None:
        self.result: Result | None = None

    def observe(self, seen: Result | None) -> None:
        order = list(Result)
        if seen is not None and (self.result is None or order.index(seen) < order.index(self.result)):
            self.result = seen

    def observe_status(self, status: int) -> None:
        """A response came through the proxy."""
        self.observe(of_status(status))

    def observe_error(self, error: BaseException) -> None:
        """A request through the proxy failed."""
        self.observe(of_exception(error))

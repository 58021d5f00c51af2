"""A leased proxy for Playwright's browsers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from proxyfleet_client.leases import HeldLease
from proxyfleet_client.outcomes import Result

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext as AsyncBrowserContext
    from playwright.sync_api import BrowserContext, ProxySettings

# What Chromium and Firefox say when the proxy is to blame.
_TIMEOUTS = ("ERR_TIMED_OUT", "ERR_CONNECTION_TIMED_OUT", "NS_ERROR_NET_TIMEOUT")
_ERRORS = ("ERR_PROXY_", "ERR_TUNNEL_", "ERR_CONNECTION_", "ERR_EMPTY_RESPONSE", "NS_ERROR_PROXY_")


def proxy_settings(lease: HeldLease) -> ProxySettings:
    """For the ``proxy`` argument of ``launch`` and ``new_context``."""
    url = urlsplit(lease.url)
    settings: ProxySettings = {"server": f"{url.scheme}://{url.netloc.rpartition('@')[2]}"}
    if url.username is not None:
        settings |= {"username": unquote(url.username), "password": unquote(url.password or "")}
    return settings


def observe(context: BrowserContext | AsyncBrowserContext, lease: HeldLease) -> None:
    """Observe, for the report, every page that is opened in this context; pictures and scripts don't count."""
    context.on("response", lambda response: _answered(response, lease))
    context.on("requestfailed", lambda request: _failed(request, lease))


def _answered(response: object, lease: HeldLease) -> None:
    if response.request.is_navigation_request():  # type: ignore[attr-defined]  # of either API
        lease.observe_status(response.status)  # type: ignore[attr-defined]


def _failed(request: object, lease: HeldLease) -> None:
    said = str(request.failure)  # type: ignore[attr-defined]  # of either API
    if any(sign in said for sign in _TIMEOUTS):
        lease.observe(Result.TIMEOUT)
    elif any(sign in said for sign in _ERRORS):
        lease.observe(Result.ERROR)

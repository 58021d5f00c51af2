"""A leased proxy for Playwright's browsers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from proxyfleet_client.leases import HeldLease
from proxyfleet_client.outcomes import Result

if TYPE_CHECKING:
    from playwright import async_api, sync_api

# What Chromium and Firefox say when the proxy is to blame.
_TIMEOUTS = ("ERR_TIMED_OUT", "ERR_CONNECTION_TIMED_OUT", "NS_ERROR_NET_TIMEOUT")
_ERRORS = ("ERR_PROXY_", "ERR_TUNNEL_", "ERR_CONNECTION_", "ERR_EMPTY_RESPONSE", "NS_ERROR_PROXY_")


def proxy_settings(lease: HeldLease) -> sync_api.ProxySettings:
    """For the ``proxy`` argument of ``launch`` and ``new_context``."""
    url = urlsplit(lease.url)
    settings: sync_api.ProxySettings = {"server": f"{url.scheme}://{url.netloc.rpartition('@')[2]}"}
    if url.username is not None:
        settings |= {"username": unquote(url.username), "password": unquote(url.password or "")}
    return settings


def observe(context: sync_api.BrowserContext | async_api.BrowserContext, lease: HeldLease) -> None:
    """Observe, for the report, every page that is opened in this context; pictures and scripts don't count."""
    context.on("response", lambda response: _answered(response, lease))
    context.on("requestfailed", lambda request: _failed(request, lease))


def _answered(response: sync_api.Response | async_api.Response, lease: HeldLease) -> None:
    if response.request.is_navigation_request():
        lease.observe_status(response.status)


def _failed(request: sync_api.Request | async_api.Request, lease: HeldLease) -> None:
    said = str(request.failure)
    if any(sign in said for sign in _TIMEOUTS):
        lease.observe(Result.TIMEOUT)
    elif any(sign in said for sign in _ERRORS):
        lease.observe(Result.ERROR)

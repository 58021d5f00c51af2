"""Leases proxies of a proxyfleet: renews them in the background, reports how they did, gives them back."""

from proxyfleet_client.answers import Proxy
from proxyfleet_client.asynchronous import AsyncFleet, AsyncLease
from proxyfleet_client.errors import FleetError, LeaseEnded, NoProxyAvailable, Refused, Unreachable
from proxyfleet_client.outcomes import Result
from proxyfleet_client.synchronous import Fleet, Lease

__all__ = [
    "AsyncFleet",
    "AsyncLease",
    "Fleet",
    "FleetError",
    "Lease",
    "LeaseEnded",
    "NoProxyAvailable",
    "Proxy",
    "Refused",
    "Result",
    "Unreachable",
]

"""The operator's home: what Django's admin finds of the fleet."""

from proxyfleet.fleet.admin import accounts, events, providers, proxies

__all__ = ["accounts", "events", "providers", "proxies"]

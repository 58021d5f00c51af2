"""A requests session through a leased proxy."""

from __future__ import annotations

from typing import Any

import requests

from proxyfleet_client.leases import HeldLease


class LeasedSession(requests.Session):
    """Everything it sends goes through the proxy; how that went is observed for the report."""

    def __init__(self, lease: HeldLease) -> None:
        super().__init__()
        self.trust_env = False
        self.proxies = {"http": lease.url, "https": lease.url}
        self._lease = lease

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        try:
            response = super().send(request, **kwargs)
        except requests.RequestException as error:
            self._lease.observe_error(error)
            raise
        self._lease.observe_status(response.status_code)
        return response

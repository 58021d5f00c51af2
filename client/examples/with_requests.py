"""Fetch a page through a leased proxy: with_requests.py URL"""

import sys
from urllib.parse import urlsplit

from proxyfleet_client import Fleet
from proxyfleet_client.adapters.requests import LeasedSession

url = sys.argv[1]

with (
    Fleet.from_environment() as fleet,
    fleet.lease(target=urlsplit(url).hostname, wait=30) as lease,
    LeasedSession(lease) as session,
):
    response = session.get(url, timeout=30)
    print(response.status_code, len(response.content), "bytes through", lease.grant.proxy.id)

"""Open a page in Chromium through a leased proxy and print its title: with_playwright.py URL"""

import os
import sys
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from proxyfleet_client import Fleet
from proxyfleet_client.adapters.playwright import observe, proxy_settings

url = sys.argv[1]

with (
    Fleet.from_environment() as fleet,
    fleet.lease(target=urlsplit(url).hostname, wait=30) as lease,
    sync_playwright() as playwright,
):
    # Chromium of the system, where CHROMIUM names it; Playwright's own otherwise.
    browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"), proxy=proxy_settings(lease))
    context = browser.new_context()
    observe(context, lease)
    page = context.new_page()
    page.goto(url)
    print(page.title(), "through", lease.grant.proxy.id)
    browser.close()

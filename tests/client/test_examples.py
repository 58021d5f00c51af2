"""The client package's examples, as programs, on a live API with real proxies and a site that bans."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from leasing import access
from leasing.models import Cooldown, EndedLease, Lease, Report
from leasing.tokens import Scope
from proxyfleet.fleet.tests.world import World, new_world
from tests.client.egress import Site, egress_proxies, site_that_bans

ROOT = Path(__file__).parents[2]
SECONDS = 60
PROXIES = 4

Run = Callable[..., str]


@pytest.fixture(scope="module")
def server(django_db_setup: None) -> Iterator[LiveServer]:
    server = LiveServer("127.0.0.1")
    yield server
    server.stop()


@pytest.fixture
def world(transactional_db: None) -> Iterator[World]:
    with new_world() as world, egress_proxies(PROXIES) as addresses:
        for host, port in addresses:
            world.ready(world.declare(mode="External", endpoint={"host": host}, port=port, maxLeases=4))
        yield world


@pytest.fixture
def run(server: LiveServer, world: World) -> Run:
    """Runs an example and returns what it printed."""
    token = access.create_token("crawler", [Scope.LEASE], created_by="test", now=world.now).secret

    def run(example: str, *arguments: str, **environment: str) -> str:
        ours = {"PROXYFLEET_API": server.url, "PROXYFLEET_TOKEN": token, "PYTHONPATH": str(ROOT / "client/src")}
        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", str(ROOT / "client/examples" / example), *arguments],
            env=os.environ | ours | environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert not done.stderr, done.stderr
        return done.stdout

    return run


def all_is_given_back(leases: int) -> bool:
    return not Lease.objects.exists() and EndedLease.objects.filter(cause="released").count() == leases


@pytest.mark.parametrize("example", ["with_requests.py", "with_httpx.py", "with_aiohttp.py", "with_playwright.py"])
def test_an_example_fetches_through_a_leased_proxy(run: Run, example: str) -> None:
    with site_that_bans() as site:
        printed = run(example, site.url, CHROMIUM=shutil.which("chromium") or "")
    assert "through default/p" in printed
    assert all(address.startswith("127.0.1.") for address in site.served), "the site was asked by a proxy alone"
    assert all_is_given_back(1)
    assert Report.objects.get().result == "ok"


def test_a_refusal_rests_the_proxy_for_the_target(run: Run) -> None:
    with site_that_bans(allowed=0, ban_seconds=60) as site:
        assert "429" in run("with_httpx.py", site.url)
    assert Cooldown.objects.get().target == "127.0.0.1"
    assert all_is_given_back(1)


def test_scrapy_crawls_a_site_that_bans(run: Run) -> None:
    """No address may fetch it all; the proxies that were banned rest and are used again."""
    with site_that_bans(pages=30, allowed=5, ban_seconds=1) as site:
        printed = run("with_scrapy.py", site.url, COOLDOWN="1")
    crawled(site, printed)
    assert len(site.served) >= 3, "more than one proxy took part"
    assert site.refused.total() > 0
    assert not Lease.objects.exists()


def crawled(site: Site, printed: str) -> None:
    assert sorted(int(line.split()[1]) for line in printed.splitlines()) == list(range(site.pages))

"""The fleet dashboard in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from proxyfleet.dashboard.tests.day import ENTRIES, add_day, add_fleet
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.phases import Phase
from proxyfleet.fleet.tests.world import World, new_world


@pytest.fixture
def world(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world of the entries of a fleet that has run for a day."""
    with new_world(*ENTRIES) as world:
        for module in ("fleet.orphans", "fleet.admin.editing", "fleet.admin.providers", "dashboard.page"):
            monkeypatch.setattr(f"proxyfleet.{module}.providers", lambda: world.providers)
        yield world


@pytest.fixture
def fleet(world: World) -> list[Proxy]:
    now = timezone.now()
    add_day(now)
    return add_fleet(now)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_shots(fleet: list[Proxy], page: Page, signed_in: Page, scheme: str, request: pytest.FixtureRequest) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto("/admin/")
    page.wait_for_timeout(2500)
    page.screenshot(path=f"/tmp/shots/{scheme}-{page.viewport_size['width']}.png", full_page=True)

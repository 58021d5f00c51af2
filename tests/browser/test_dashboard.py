"""The fleet dashboard in a real browser: what it shows, how it stays fresh, and that nobody loses their place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from proxyfleet.dashboard.page import REFRESH_SECONDS
from proxyfleet.dashboard.tests.day import ENTRIES, add_day, add_fleet
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.phases import Phase
from proxyfleet.fleet.roles import Role
from proxyfleet.fleet.tests.world import World, new_world
from tests.browser.conftest import SIZES

PATIENCE = 30_000
"""Milliseconds that a busy machine has for what a person waits a moment for."""

A_STEP = re.compile(r"^\d\d:\d0 to \d\d:\d0 UTC$")


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


@pytest.fixture
def board(fleet: list[Proxy], signed_in: Page) -> Page:
    """The dashboard, with a clock that the test moves."""
    signed_in.clock.install()
    signed_in.goto("/admin/")
    expect(signed_in.locator("#fleet-queues table, #fleet-queues .fleet-bad")).to_be_visible(timeout=PATIENCE)
    return signed_in


def refresh(page: Page) -> None:
    """Let the time of one refresh pass, and wait for it."""
    with page.expect_response("**/admin/dashboard/parts/", timeout=PATIENCE):
        page.clock.run_for(REFRESH_SECONDS * 1000)


def test_an_operator_sees_the_fleet(board: Page, fleet: list[Proxy]) -> None:
    expect(board.locator("#tile-proxies")).to_contain_text("200")
    expect(board.locator("#tile-healthy")).to_contain_text("194 of 199 Ready")
    expect(board.locator("#tile-providers")).to_contain_text("3 of 4")
    charts = board.get_by_role("img", name="last 24 hours")
    expect(charts).to_have_count(5)
    for chart in charts.all():
        box = chart.bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 100
    assert board.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    board.locator("#tile-proxies").get_by_role("link", name="Failed").click()
    expect(board.get_by_role("link", name="crawl/crawl-000")).to_be_visible()
    expect(board.get_by_text("crawl/crawl-001")).to_have_count(0)


def test_what_helps_is_one_step_away(board: Page, fleet: list[Proxy]) -> None:
    row = board.get_by_role("row").filter(has_text="crawl/crawl-001")
    row.get_by_role("link", name="Replace").click()
    expect(board.get_by_text("Then a new instance takes the old one's place")).to_be_visible()
    board.get_by_role("link", name="Cancel").click()
    expect(board.locator("#fleet-dashboard")).to_be_visible()
    board.get_by_role("row").filter(has_text="crawl/crawl-004").get_by_role("button", name="Try again now").click()
    expect(board.get_by_text("Reconcile asked for: crawl/crawl-004.")).to_be_visible()
    expect(board.locator("#fleet-dashboard")).to_be_visible()


def test_it_refreshes_and_nobody_loses_their_place(board: Page, fleet: list[Proxy]) -> None:
    board.evaluate("window.still = true")
    table = board.locator("#table-latency")
    table.locator("summary").click()
    box = table.locator(".fleet-scroll")
    box.evaluate("box => { box.scrollTop = 80 }")
    link = board.get_by_role("row").filter(has_text="crawl/crawl-002").get_by_role("link", name="Replace")
    link.focus()
    # One trouble more above the focused link, and one proxy less.
    Proxy.objects.filter(pk=fleet[20].pk).update(phase=Phase.FAILED, reason="InvalidRequest")
    Proxy.objects.filter(pk=fleet[21].pk).update(phase=Phase.REPLACING)
    where = board.evaluate("window.scrollY")
    refresh(board)
    expect(board.locator("#tile-proxies")).to_contain_text("Failed 2", timeout=PATIENCE)
    expect(board.get_by_role("row").filter(has_text="crawl/crawl-020")).to_be_visible()
    expect(link).to_be_focused()
    assert table.evaluate("details => details.open")
    assert box.evaluate("box => box.scrollTop") == 80
    assert board.evaluate("window.scrollY") == where
    assert board.evaluate("window.still"), "the page was not loaded anew"


def test_a_hidden_tab_rests(board: Page) -> None:
    asked: list[str] = []
    board.on("request", lambda request: asked.append(request.url))

    def hide(hidden: str) -> None:
        board.evaluate(
            f"Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    hide("true")
    board.clock.run_for(10 * REFRESH_SECONDS * 1000)
    assert asked == []
    with board.expect_response("**/admin/dashboard/queues/", timeout=PATIENCE):
        hide("false")


def test_the_pointer_reads_a_chart(board: Page) -> None:
    figure = board.locator("#chart-healthy")
    area = figure.locator(".fleet-area")
    area.scroll_into_view_if_needed()
    area.hover(position={"x": 5, "y": 20})
    expect(figure.locator("[data-when]")).to_have_text(A_STEP)
    expect(figure.locator(".fleet-cursor")).to_be_visible()
    board.locator("#attention-title").hover()
    expect(figure.locator("[data-when]")).to_have_text("latest")
    expect(figure.locator(".fleet-cursor")).to_be_hidden()


def test_a_fleet_without_proxies_says_how_to_begin(world: World, signed_in: Page) -> None:
    expect(signed_in.get_by_text("Nothing to show yet.")).to_have_count(5)
    signed_in.get_by_role("link", name="Declare the first").click()
    expect(signed_in.get_by_role("heading", name="Declare a proxy")).to_be_visible()


@pytest.fixture
def viewer(fleet: list[Proxy]) -> Client:
    user = User.objects.create_user("vera", is_staff=True)
    user.groups.add(Group.objects.get(name=Role.VIEWER))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def careless(fleet: list[Proxy], browser: Browser, server: LiveServer, viewer: Client) -> Iterator[Page]:
    """A viewer's dashboard in a window whose failed requests are no failure of the test."""
    context = browser.new_context(viewport=SIZES["laptop"], base_url=server.url)
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": viewer.cookies[name].value, "url": server.url}])
    page = context.new_page()
    page.clock.install()
    page.goto("/admin/")
    expect(page.locator("#fleet-queues table, #fleet-queues .fleet-bad")).to_be_visible(timeout=PATIENCE)
    yield page
    context.close()


def test_it_says_when_the_server_is_away(careless: Page) -> None:
    page, stale = careless, careless.locator("#fleet-stale")
    expect(stale).to_be_hidden()
    page.context.set_offline(True)
    page.clock.run_for(REFRESH_SECONDS * 1000)
    expect(stale).to_contain_text("The server can't be reached. What you see is of ", timeout=PATIENCE)
    page.context.set_offline(False)
    refresh(page)
    expect(stale).to_be_hidden(timeout=PATIENCE)


def test_it_says_when_one_is_signed_out(careless: Page) -> None:
    Session.objects.all().delete()
    careless.clock.run_for(REFRESH_SECONDS * 1000)
    careless.get_by_role("link", name="You are signed out: sign in again.").click(timeout=PATIENCE)
    expect(careless.get_by_label("Username")).to_be_visible()


def test_a_viewer_has_no_button(careless: Page) -> None:
    rows = careless.locator(".fleet-attention-row")
    expect(rows).to_have_count(7)
    expect(rows.get_by_role("button")).to_have_count(0)
    expect(rows.locator("a.dash-button")).to_have_text(["See its checks"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(board: Page, scheme: Literal["light", "dark"]) -> None:
    """Against its background, by WCAG's contrast for text (AA, 4.5)."""
    board.emulate_media(color_scheme=scheme)
    board.reload()
    expect(board.locator("#fleet-queues table, #fleet-queues .fleet-bad")).to_be_visible(timeout=PATIENCE)
    expect(board.locator("html.dark")).to_have_count(1 if scheme == "dark" else 0)
    faint = board.evaluate(CONTRASTS)
    assert not faint, faint


CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = rgba(getComputedStyle(each).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("#fleet-dashboard *")) {
    const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!text || !element.checkVisibility() || element.matches(".material-symbols-outlined")) continue;
    const [a, b] = [light(rgba(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.push(`${element.className} ${element.textContent.trim()}: ${contrast.toFixed(2)}`);
  }
  return faint;
}"""

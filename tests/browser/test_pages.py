"""Every page of the admin, from its URL resolver, on each window: axe-core has nothing to say, nothing is too wide."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from proxyfleet.fleet.tests.world import World
from tests.admin import urls
from tests.admin.filling import Filled, fill
from tests.browser.accessibility import violations
from tests.browser.conftest import SIZES, sign_in, window

NOT_SHOWN = frozenset(
    {
        "logout",  # ends the session
        "jsi18n",  # scripts, data and parts of pages
        "autocomplete",
        "dashboard:parts",
        "dashboard:queues",
        "search",
        "view_on_site",
        "fleet_proxy_instance",
        "fleet_providerstate_check",  # these lead elsewhere
        "fleet_proxy_of_uid",
        "login",
    }
)
READ_ONLY = frozenset({"proxyevent", "lease", "endedlease", "cooldown", "report"})
"""Have no page to add or delete one."""

DARK = """() => {
  const still = document.createElement("style");
  still.textContent = "* { transition: none !important }";
  document.head.append(still);
  document.documentElement.classList.add("dark");
}"""
"""As the theme does it, and at once."""

WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def pages(filled: Filled) -> Iterator[str]:
    for name in sorted(set(urls.names()) - NOT_SHOWN):
        model, _, page = name.rpartition("_")
        if (page in ("add", "delete") and model.rpartition("_")[2] in READ_ONLY) or name == "leasing_apitoken_delete":
            continue
        found = urls.url_of(name, filled)
        if name == "fleet_proxy_do":
            yield from (f"{url}?ids={filled.proxy.pk}" for url in found)
        elif name not in ("fleet_proxy_delete",):
            yield from found
    yield from more_states(filled)


def more_states(filled: Filled) -> Iterator[str]:
    """Filtered, searched, paged and empty lists; parts of the history."""
    proxies, events, reports = "/admin/fleet/proxy/", "/admin/fleet/proxyevent/", "/admin/leasing/report/"
    yield f"{proxies}?phase__exact=Failed&attribute=geo%3Deu"
    yield f"{proxies}?q=no-such-proxy"
    yield f"{events}?q=crawl-eu-1"
    yield f"{events}?q=no-such-proxy"
    yield f"{reports}?target=shop.example.com"
    yield f"{reports}?before={filled.report.pk}"
    yield "/admin/leasing/cooldown/targets/?q=no-such-target"
    yield f"/admin/fleet/proxy/{filled.proxy.pk}/change/?show=reports"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", SIZES)
def test_every_page(browser: Browser, server: LiveServer, world: World, pytestconfig: pytest.Config, size: str) -> None:
    filled = fill(world)
    folder = pytestconfig.getoption("--screenshots")
    shots = Path(folder) if folder else None
    with window(browser, server, size) as page:
        found = _look(page, "/admin/login/", shots, size)
        sign_in(page)
        for path in pages(filled):
            found += _look(page, path, shots, size)
        for state in STATES:
            state(page)
            found += _judge(page, state.__name__, shots, size)
        assert not found, "\n".join(found)


def wrong_input(page: Page) -> None:
    page.goto("/admin/fleet/proxy/add/")
    page.locator("[name=name]").fill("No_Such")
    page.locator("[name=port]").fill("70000")
    page.locator("[name=attribute_lines]").fill("nonsense")
    page.get_by_role("button", name="Declare").click()
    expect(page.get_by_text("Line 1: write key=value.")).to_be_visible()


def an_external_proxy(page: Page) -> None:
    page.goto("/admin/fleet/proxy/add/")
    page.locator("[name=mode]").select_option("External")
    expect(page.locator("[name=endpoint_host]")).to_be_visible()


def filters(page: Page) -> None:
    page.goto("/admin/fleet/proxy/")
    page.get_by_role("button", name="Filters").click()
    expect(page.get_by_label("By attribute")).to_be_visible()


def chosen_rows(page: Page) -> None:
    page.goto("/admin/fleet/proxy/")
    for box in page.locator("tbody input.action-select").all()[:3]:
        box.check()
    page.get_by_label("Select action to run").select_option("delete")
    expect(page.get_by_role("button", name="Run")).to_be_visible()


def a_question_about_many(page: Page) -> None:
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", name="Delete 3 proxies?")).to_be_visible()


def a_question_about_leases(page: Page) -> None:
    page.goto("/admin/leasing/lease/")
    for box in page.locator("tbody input.action-select").all()[:2]:
        box.check()
    page.get_by_label("Select action to run").select_option("release")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("Whoever holds them is not asked")).to_be_visible()


def a_new_token(page: Page) -> None:
    page.goto("/admin/leasing/apitoken/add/")
    page.locator("[name=name]").fill("fresh")
    page.get_by_label("lease: lease proxies").check()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#token")).to_be_visible()


STATES = (
    *(wrong_input, an_external_proxy, filters, chosen_rows, a_question_about_many),
    *(a_question_about_leases, a_new_token),
)
"""What no link leads to. In this order: one goes on where another ended."""


def _look(page: Page, path: str, shots: Path | None, size: str) -> list[str]:
    """At a page in light and dark, which differ in nothing but colours."""
    page.goto(path)
    return _judge(page, path, shots, size)


def _judge(page: Page, path: str, shots: Path | None, size: str) -> list[str]:
    expect(page.get_by_role("heading").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    found = violations(page)
    if (wide := page.evaluate(WIDER)) > 0:
        found.append(f"{wide} px wider than the window")
    _shoot(page, path, shots, f"{size}-light")
    page.evaluate(DARK)
    found += [f"in the dark: {violation}" for violation in violations(page, colours_only=True)]
    _shoot(page, path, shots, f"{size}-dark")
    return [f"{path}: {problem}" for problem in found]


def _shoot(page: Page, path: str, shots: Path | None, folder: str) -> None:
    if shots is None:
        return
    (shots / folder).mkdir(parents=True, exist_ok=True)
    name = path.removeprefix("/admin/").strip("/").replace("/", "_") or "index"
    page.screenshot(path=shots / folder / f"{name}.png", full_page=True)

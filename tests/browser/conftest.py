"""A real browser, Debian's Chromium, in front of the admin."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.contrib.auth.models import Group, User
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, ViewportSize, sync_playwright
from pytest_django.live_server_helper import LiveServer

from proxyfleet.fleet.roles import Role
from proxyfleet.fleet.tests.world import World, new_world

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
SIZES: dict[str, ViewportSize] = {"laptop": {"width": 1366, "height": 768}, "phone": {"width": 390, "height": 844}}
PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="module")
def browser(django_db_setup: None) -> Iterator[Browser]:
    """One for the tests of a module, and no longer: its event loop runs in this thread as long as it is open."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("The browser tests need Chromium: apt-get install chromium", pytrace=False)
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Django would take that loop for one that our queries block; they run between the browser's steps.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "yes")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(django_db_setup: None) -> Iterator[LiveServer]:
    server = LiveServer("127.0.0.1")
    yield server
    server.stop()


@pytest.fixture
def world(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world whose one provider entry, ``mem``, is the one that the admin knows."""
    with new_world() as world:
        for module in ("orphans", "admin.editing", "admin.instance", "admin.providers"):
            monkeypatch.setattr(f"proxyfleet.fleet.{module}.providers", lambda: world.providers)
        yield world


@contextmanager
def window(browser: Browser, server: LiveServer, size: str) -> Iterator[Page]:
    """A window at the admin's door. Fails on any error in the console and any failed request."""
    user = User.objects.create_user("olive", password=PASSWORD, is_staff=True)
    user.groups.add(Group.objects.get(name=Role.ADMIN))
    context = browser.new_context(viewport=SIZES[size], base_url=server.url, reduced_motion="reduce")
    page = context.new_page()
    problems: list[str] = []
    _watch(page, problems)
    page.goto("/admin/")
    try:
        yield page
    finally:
        context.close()
    assert not problems, "\n".join(problems)


def sign_in(page: Page) -> None:
    page.get_by_label("Username").fill("olive")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/admin/")  # whoever goes on before it is there aborts a request


@pytest.fixture(params=SIZES)
def page(request: pytest.FixtureRequest, browser: Browser, server: LiveServer, world: World) -> Iterator[Page]:
    with window(browser, server, request.param) as page:
        yield page


@pytest.fixture
def signed_in(page: Page) -> Page:
    sign_in(page)
    return page


def _watch(page: Page, problems: list[str]) -> None:
    """Note what nobody at the window would see."""

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            problems.append(f"{page.url}: {message.text}")

    def on_response(response: Response) -> None:
        if response.status >= 400:
            problems.append(f"{response.url}: {response.status}")

    def on_failure(request: Request) -> None:
        # Whoever goes on to the next page breaks off what is fetched when all else is there.
        left = request.failure == "net::ERR_ABORTED" and (
            request.url.endswith("favicon.svg") or "/admin/dashboard/" in request.url
        )
        if not left:
            problems.append(f"{request.url}: {request.failure}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
    page.on("requestfailed", on_failure)
    page.on("response", on_response)

"""An operator's day in a real browser, on a laptop and on a phone."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from proxyfleet.fleet import operations
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.tests.world import World
from tests.browser.conftest import PASSWORD


def message(page: Page, text: str) -> None:
    expect(page.get_by_text(text, exact=True)).to_be_visible()


def button(page: Page, name: str) -> None:
    page.locator("#proxy-actions").get_by_role("button", name=name).click()


def test_signing_in(page: Page) -> None:
    page.get_by_label("Username").fill("olive")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("Please enter the correct username and password")).to_be_visible()
    page.get_by_label("Username").fill("olive")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("link", name="Proxies").first).to_be_attached()


def test_declaring_a_proxy(signed_in: Page) -> None:
    page = signed_in
    page.goto("/admin/fleet/proxy/")
    page.locator("a.addlink").click()
    page.get_by_label("Name", exact=False).and_(page.locator("[name=name]")).fill("No_Such")
    page.locator("[name=port]").fill("70000")
    page.get_by_role("button", name="Declare").click()
    expect(page.get_by_text("Must be at most 253 of [a-z0-9.-]")).to_be_visible()
    expect(page.get_by_text("less than or equal to 65535")).to_be_visible()
    assert not Proxy.objects.exists()

    page.locator("[name=name]").fill("eu-1")
    page.locator("[name=port]").fill("3128")
    page.locator("[name=attribute_lines]").fill("region=eu")
    page.get_by_role("button", name="Declare").click()
    message(page, "default/eu-1 is declared.")
    assert Proxy.objects.get().attributes == {"region": "eu"}


def test_the_form_follows_the_mode(signed_in: Page) -> None:
    page = signed_in
    page.goto("/admin/fleet/proxy/add/")
    expect(page.locator("[name=provider]")).to_be_visible()
    expect(page.locator("[name=endpoint_host]")).to_be_hidden()
    page.locator("[name=zone]").fill("typed before switching")
    page.locator("[name=mode]").select_option("External")
    expect(page.locator("[name=provider]")).to_be_hidden()
    page.locator("[name=name]").fill("elsewhere")
    page.locator("[name=endpoint_host]").fill("192.0.2.7")
    page.get_by_role("button", name="Declare").click()
    message(page, "default/elsewhere is declared.")


def test_editing_a_proxy(signed_in: Page, world: World) -> None:
    page = signed_in
    proxy = world.ready(world.declare("eu-1", cloudInit={"inline": "#cloud-config\npackages: [squid]\n"}))
    page.goto("/admin/fleet/proxy/")
    page.get_by_role("link", name="default/eu-1").click()
    expect(page.locator("#proxy-state")).to_contain_text("Ready", ignore_case=True)
    page.get_by_role("link", name="Edit").click()
    page.locator("[name=max_leases]").fill("3")
    page.get_by_role("button", name="Save").click()
    message(page, "default/eu-1 is saved.")
    expect(page.locator("#timeline")).to_contain_text("by olive")
    changed = world.read(proxy)
    assert changed.max_leases == 3
    assert changed.cloud_init_inline == "#cloud-config\npackages: [squid]\n", "the instance is not replaced"


def test_the_buttons_of_a_proxy(signed_in: Page, world: World) -> None:
    page = signed_in
    proxy = world.ready(world.declare("eu-1", drainSeconds=60))
    page.goto(f"/admin/fleet/proxy/{proxy.pk}/change/")
    button(page, "Cordon")
    message(page, "Cordoned: default/eu-1.")
    button(page, "Uncordon")
    message(page, "Uncordoned: default/eu-1.")
    button(page, "Replace")
    expect(page.get_by_text("a new instance takes the old one's place")).to_be_visible()
    page.get_by_role("link", name="Cancel").click()
    assert world.read(proxy).replacement == 0
    button(page, "Delete")
    expect(page.get_by_text(f"Then the instance {proxy.provider_id} is deleted.")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    message(page, "Deletion asked for: default/eu-1.")
    expect(page.locator("#proxy-state")).to_contain_text("being deleted")
    assert world.read(proxy).deletion_requested_at is not None


def test_acting_on_many(signed_in: Page, world: World) -> None:
    page = signed_in
    world.declare("a")
    going = world.declare("b")
    operations.request_deletion(going.pk, actor="someone", now=world.now)
    page.goto("/admin/fleet/proxy/")
    for box in page.locator("tbody input.action-select").all():
        box.check()
    page.get_by_label("Select action to run").select_option("cordon")
    page.get_by_role("button", name="Run").click()
    message(page, "Cordoned: default/a.")
    message(page, "Not done: default/b is being deleted.")


def test_every_page_is_there(signed_in: Page, world: World) -> None:
    page = signed_in
    proxy = world.ready(world.declare("eu-1"))
    for path in (
        "",
        f"fleet/proxy/{proxy.pk}/history/",
        "fleet/proxyevent/",
        "fleet/providerstate/",
        "fleet/providerstate/mem/change/",
        "fleet/providerstate/mem/dry-run/",
        "leasing/lease/",
        "leasing/endedlease/",
        "leasing/cooldown/",
        "leasing/report/",
        "leasing/apitoken/",
        "leasing/apitoken/add/",
        "auth/user/",
        "auth/user/add/",
        "auth/group/",
        "auth/group/add/",
    ):
        page.goto(f"/admin/{path}")
        expect(page.get_by_role("heading").first).to_be_visible()
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{path} is {wide} px wider than the window"

"""An operator's day in a real browser, on a laptop and on a phone."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from health import memory, provider_checks
from proxyfleet.fleet import operations
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.ports import FieldConflict, ports
from proxyfleet.fleet.tests.world import World
from tests.admin.filling import fill
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


def test_filtering_by_attribute(signed_in: Page, world: World) -> None:
    page = signed_in
    world.declare("eu-1", attributes={"geo": "eu", "tier": "gold"})
    world.declare("us-1", attributes={"geo": "us"})
    page.goto("/admin/fleet/proxy/?phase__exact=Pending")
    page.get_by_role("button", name="Filters").press("Enter")
    page.get_by_label("By attribute").fill("geo=eu, tier")
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.get_by_role("link", name="default/eu-1")).to_be_visible()
    expect(page.get_by_role("link", name="default/us-1")).to_have_count(0)
    expect(page).to_have_url(re.compile("phase__exact=Pending"))


def test_what_the_cluster_does_not_take_is_said_at_the_field(
    signed_in: Page, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Contested:
        """A cluster in which somebody else manages the field."""

        def apply_spec(self, *_: object) -> None:
            raise FieldConflict({"maxLeases": ["is managed by flux: change it there"]})

    monkeypatch.setattr(ports, "cluster", Contested())
    page = signed_in
    proxy = world.declare("eu-1")
    Proxy.objects.update(origin="cluster")
    page.goto(f"/admin/fleet/proxy/{proxy.pk}/change/")
    expect(page.locator("#kubectl")).to_have_text("kubectl describe px eu-1 --namespace default")
    page.get_by_role("link", name="Edit").click()
    page.locator("[name=max_leases]").fill("3")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Is managed by flux: change it there")).to_be_visible()


def test_an_external_proxy_shows_what_it_needs(signed_in: Page, world: World) -> None:
    page = signed_in
    page.goto("/admin/fleet/proxy/add/")
    page.locator("[name=mode]").select_option("External")
    expect(page.locator("label[for=id_endpoint_host]")).to_have_text("Host*")
    page.locator("[name=name]").fill("elsewhere")
    page.get_by_role("button", name="Declare").click()
    expect(page.get_by_text("An External proxy needs one")).to_be_visible()


def test_older_and_newer_with_a_search(signed_in: Page, world: World) -> None:
    page = signed_in
    proxy, other = world.declare("eu-1"), world.declare("us-1")
    for number in range(60):
        for one in (proxy, other):
            (operations.cordon if number % 2 == 0 else operations.uncordon)(one.pk, actor="someone", now=world.now)
    page.goto("/admin/fleet/proxyevent/?q=eu-1")
    rows = page.locator("#result_list tr.data-row")
    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(11)
    expect(page.get_by_role("link", name="Older")).to_have_count(0)
    expect(rows.filter(has_text="us-1")).to_have_count(0)
    page.get_by_role("link", name="Newer").click()
    expect(rows).to_have_count(50)
    expect(page.get_by_role("link", name="Newer")).to_have_count(0)


def test_a_proxy_through_its_targets(signed_in: Page, world: World) -> None:
    filled = fill(world, proxies=8)
    page = signed_in
    page.goto("/admin/leasing/cooldown/targets/")
    page.get_by_role("searchbox").fill("shop")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="shop.example.com").click()
    page.get_by_role("link", name=str(filled.proxy), exact=True).first.click()
    expect(page.locator("#proxy-state")).to_contain_text(filled.proxy.name)
    page.get_by_role("link", name="Reports", exact=True).last.click()
    expect(page.locator("#timeline")).to_contain_text("which it rests for")
    expect(page.locator("#instance")).to_contain_text("running")


def test_a_provider_is_checked_now(signed_in: Page, world: World) -> None:
    page = signed_in
    page.goto("/admin/fleet/providerstate/mem/change/")
    page.get_by_role("button", name="Check now").click()
    message(page, "A worker checks mem now; what it finds shows here.")
    provider_checks.check_provider("mem", world.providers, world.now, timeout=30)
    memory.keep_check("mem", timezone.now())
    expect(page.locator("#checks")).to_contain_text("Healthy", ignore_case=True)
    expect(page.locator("#checks")).to_contain_text("s ago")
    page.goto("about:blank")  # the page asks again and again, and would be cut short in that


def test_a_token_is_made_and_shown_once(signed_in: Page) -> None:
    page = signed_in
    page.goto("/admin/leasing/apitoken/add/")
    page.locator("[name=name]").fill("crawler")
    page.get_by_label("lease: lease proxies").check()
    page.get_by_role("button", name="Save", exact=True).click()
    secret = page.locator("#token").inner_text()
    cut_off = page.locator("#token").evaluate("e => e.getBoundingClientRect().right - e.closest('main').clientWidth")
    assert cut_off <= 0, "whoever copies it by hand needs all of it"
    page.get_by_role("link", name="Done").click()
    expect(page.get_by_role("link", name="crawler")).to_be_visible()
    assert secret not in page.content()

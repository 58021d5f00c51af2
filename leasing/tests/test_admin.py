from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from leasing import access, blocking
from leasing.ids import uuid7
from leasing.models import ApiToken, Cooldown, EndCause, EndedLease, Lease, Report
from leasing.tests.api import Api
from leasing.tests.fleet import make_proxy
from leasing.tokens import Scope
from proxyfleet.fleet.roles import Role

PAGES = ["lease", "endedlease", "cooldown", "report"]


def sign_in(role: Role) -> Client:
    user = User.objects.create_user(f"the-{role}", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    return client


def listing(model: str) -> str:
    return reverse(f"admin:leasing_{model}_changelist")


@pytest.fixture
def viewer(api: Api) -> Client:
    return sign_in(Role.VIEWER)


@pytest.fixture
def operator(api: Api) -> Client:
    return sign_in(Role.OPERATOR)


@pytest.fixture
def manager(api: Api) -> Client:
    return sign_in(Role.ADMIN)


@pytest.fixture
def lease(api: Api) -> Lease:
    make_proxy("a", max_leases=5)
    lease_id = api.post("/v1/leases", {"target": "example.com", "client": "x"}).body["leaseID"]
    api.post(f"/v1/leases/{lease_id}/report", {"result": "blocked"})
    ended = api.post("/v1/leases", {"client": "y"}).body["leaseID"]
    api.delete(f"/v1/leases/{ended}")
    return Lease.objects.get(pk=lease_id)


def do(client: Client, model: str, action: str, *ids: Any, **more: str) -> Any:
    return client.post(listing(model), {"action": action, "_selected_action": [str(pk) for pk in ids], **more})


def hold_to_looking(client: Client, model: str) -> None:
    """There are rows, and none can be made, changed or deleted."""
    page = client.get(listing(model))
    assert page.status_code == 200
    (row, *_) = page.context["cl"].result_list
    change = reverse(f"admin:leasing_{model}_change", args=[row.pk])
    assert client.get(change).status_code == 200
    assert client.post(change, {"name": "other"}).status_code == 403
    assert client.get(reverse(f"admin:leasing_{model}_delete", args=[row.pk])).status_code == 403
    assert client.get(f"{listing(model)}?q=example").status_code == 200


@pytest.mark.parametrize("model", PAGES)
def test_a_viewer_looks_and_no_more(viewer: Client, lease: Lease, model: str) -> None:
    hold_to_looking(viewer, model)
    assert viewer.get(reverse(f"admin:leasing_{model}_add")).status_code == 403


def test_tokens_are_for_admins_and_not_to_be_edited(viewer: Client, manager: Client) -> None:
    access.create_token("t", [Scope.READ], created_by="ann", now=timezone.now())
    assert viewer.get(listing("apitoken")).status_code == 403
    assert viewer.get(reverse("admin:leasing_apitoken_add")).status_code == 403
    hold_to_looking(manager, "apitoken")


def test_a_viewer_has_no_actions(viewer: Client, lease: Lease) -> None:
    do(viewer, "lease", "release", lease.pk, confirmed="yes")
    do(viewer, "cooldown", "lift", Cooldown.objects.get().pk)
    assert Lease.objects.exists()
    assert Cooldown.objects.exists()


def test_a_lease_is_released_after_a_question(operator: Client, lease: Lease) -> None:
    question = do(operator, "lease", "release", lease.pk)
    assert "Release 1 lease?" in question.content.decode()
    assert Lease.objects.exists()
    do(operator, "lease", "release", lease.pk, confirmed="yes")
    assert EndedLease.objects.get(pk=lease.pk).cause == EndCause.RELEASED_BY_OPERATOR
    assert LogEntry.objects.get().object_id == str(lease.pk)


def test_a_cooldown_is_lifted(operator: Client, lease: Lease, api: Api) -> None:
    assert api.post("/v1/leases", {"target": "example.com"}).status == 409
    do(operator, "cooldown", "lift", Cooldown.objects.get().pk)
    assert api.post("/v1/leases", {"target": "example.com"}).status == 201
    assert LogEntry.objects.get().get_change_message() == "Lifted."


def test_a_token_is_shown_on_one_page_only_and_then_works(manager: Client, api: Api) -> None:
    expires = timezone.now() + timedelta(days=1)
    form = {
        "name": "crawler",
        "scopes": ["read"],
        "expires_at_0": f"{expires:%Y-%m-%d}",
        "expires_at_1": f"{expires:%H:%M:%S}",
    }
    page = manager.post(reverse("admin:leasing_apitoken_add"), form)
    found = re.search(r'<code id="token">(\S+)</code>', page.content.decode())
    assert found is not None
    secret = found[1]
    assert "no-store" in page.headers["Cache-Control"]
    token = ApiToken.objects.get()
    assert (token.scopes, token.created_by) == (["read"], User.objects.get().username)
    assert Api(secret).get("/v1/proxies").status == 200
    for url in (listing("apitoken"), reverse("admin:leasing_apitoken_change", args=[token.pk]), reverse("admin:index")):
        content = manager.get(url).content.decode()
        assert secret not in content
        assert token.hash not in content
    assert secret not in str(list(LogEntry.objects.values()))


def test_a_name_is_given_once(manager: Client) -> None:
    access.create_token("crawler", [Scope.READ], created_by="ann", now=timezone.now())
    page = manager.post(reverse("admin:leasing_apitoken_add"), {"name": "crawler", "scopes": ["read"]})
    assert "already exists" in page.content.decode()
    assert ApiToken.objects.count() == 1


def test_a_token_is_revoked_after_a_question(manager: Client, api: Api) -> None:
    secret = access.create_token("crawler", [Scope.READ], created_by="ann", now=timezone.now()).secret
    token = ApiToken.objects.get()
    assert "can&#x27;t be taken back" in do(manager, "apitoken", "revoke", token.pk).content.decode()
    assert Api(secret).get("/v1/proxies").status == 200
    do(manager, "apitoken", "revoke", token.pk, confirmed="yes")
    assert Api(secret).get("/v1/proxies").status == 401
    assert LogEntry.objects.get().get_change_message() == "Revoked."


def test_nobody_can_ask_for_a_hash_letter_by_letter(manager: Client) -> None:
    access.create_token("crawler", [Scope.READ], created_by="ann", now=timezone.now())
    assert manager.get(f"{listing('apitoken')}?hash__startswith=a").status_code == 400


def test_the_list_of_tokens_says_that_the_api_is_open(manager: Client) -> None:
    assert "The API is open" in manager.get(listing("apitoken")).content.decode()
    access.create_token("crawler", [Scope.READ], created_by="ann", now=timezone.now())
    assert "The API is open" not in manager.get(listing("apitoken")).content.decode()


def test_targets_in_order_of_trouble(viewer: Client, api: Api) -> None:
    now = timezone.now()
    proxies = [make_proxy(f"p-{number}") for number in range(3)]
    for proxy, target in ((0, "worst.example"), (1, "worst.example"), (0, "bad.example")):
        Cooldown.objects.create(proxy=proxies[proxy], target=target, until=now + timedelta(minutes=5))
    Cooldown.objects.create(proxy=proxies[2], target="over.example", until=now - timedelta(seconds=1))
    for target, result, ago in (
        ("worst.example", "blocked", 5),
        ("worst.example", "ok", 5),
        ("fine.example", "ok", 5),
        ("old.example", "ok", 61),
        ("", "ok", 5),
    ):
        Report.objects.create(
            lease_id=uuid7(now),
            proxy_uid=proxies[0].uid,
            namespace="default",
            name="p-0",
            target=target,
            result=result,
            at=now - timedelta(minutes=ago),
        )
    found = blocking.trouble(now, limit=10)
    assert [(one.target, one.cooling, one.reports, one.succeeded, one.refused) for one in found] == [
        ("worst.example", 2, 2, 1, 1),
        ("bad.example", 1, 0, 0, 0),
        ("fine.example", 0, 1, 1, 0),
    ]
    assert [one.success_rate for one in found] == [0.5, None, 1.0]
    assert blocking.trouble(now, after=found[0], limit=10) == found[1:]
    assert [one.target for one in blocking.trouble(now, part="a", limit=10)] == [one.target for one in found]
    assert [one.target for one in blocking.trouble(now, part="wor", limit=10)] == ["worst.example"]
    assert blocking.trouble(now, part="%", limit=10) == []
    shown = viewer.get(reverse("admin:leasing_target_page", args=["worst.example"])).content.decode()
    for words in ("50%", "p-0", "p-1", "Blocked"):
        assert words in shown
    assert "p-2" not in shown


def test_targets_are_paged(viewer: Client, api: Api) -> None:
    proxy = make_proxy("a")
    until = timezone.now() + timedelta(minutes=5)
    Cooldown.objects.bulk_create(Cooldown(proxy=proxy, target=f"t-{n:03}.example", until=until) for n in range(120))
    url, seen = reverse("admin:leasing_target_list"), []
    place = url
    while place:
        context = viewer.get(place).context
        seen += [re.sub("<[^>]*>", "", str(row[0])) for row in context["table"]["rows"]]
        place = context["more_url"] and url + context["more_url"]
    assert seen == [f"t-{n:03}.example" for n in range(120)]


def test_a_question_names_who_holds_the_lease(operator: Client, lease: Lease) -> None:
    assert "x on default/a for example.com" in do(operator, "lease", "release", lease.pk).content.decode()

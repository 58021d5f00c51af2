"""The admin through Django's test client: who may do what, what is refused where, and what is never shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from providers.errors import Unavailable
from providers.tests.backend import Call, Fault, refuse
from proxyfleet.fleet import operations
from proxyfleet.fleet.admin import instance
from proxyfleet.fleet.models import ProviderState, Proxy, ProxyEvent
from proxyfleet.fleet.roles import Role
from proxyfleet.fleet.tests.browsing import errors, filled, told
from proxyfleet.fleet.tests.world import World, new_world

SECRET = "ssh-key-of-the-crawler"
LIST = reverse("admin:fleet_proxy_changelist")
ADD = reverse("admin:fleet_proxy_add")
SignIn = Callable[[Role], Client]


@pytest.fixture
def world(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world whose one provider entry, ``mem``, is the one that the admin knows."""
    with new_world() as world:
        for module in ("orphans", "admin.editing", "admin.instance", "admin.providers"):
            monkeypatch.setattr(f"proxyfleet.fleet.{module}.providers", lambda: world.providers)
        yield world


@pytest.fixture
def sign_in(db: None) -> SignIn:
    def sign_in(role: Role) -> Client:
        user = User.objects.create_user(username=f"the-{role}", is_staff=True)
        user.groups.add(Group.objects.get(name=role))
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def operator(sign_in: SignIn) -> Client:
    return sign_in(Role.OPERATOR)


def page(proxy: Proxy) -> str:
    return reverse("admin:fleet_proxy_change", args=[proxy.pk])


def edit(proxy: Proxy) -> str:
    return reverse("admin:fleet_proxy_edit", args=[proxy.pk])


def do(verb: str) -> str:
    return reverse("admin:fleet_proxy_do", args=[verb])


def test_declaring_a_proxy_goes_through_the_operations(world: World, operator: Client) -> None:
    values = filled(operator, ADD, name="p1", attribute_lines="region=eu\ntier=gold", cloud_init="#cloud-config\r\n")
    response = operator.post(ADD, values, follow=True)
    proxy = Proxy.objects.get()
    assert told(response) == ["default/p1 is declared."]
    assert response.redirect_chain[0][0] == page(proxy)
    assert (proxy.provider, proxy.attributes) == ("mem", {"region": "eu", "tier": "gold"})
    assert proxy.cloud_init_inline == "#cloud-config\n", "a browser's line ends are not the guest's"
    assert proxy.events.get().actor == "the-operator"
    assert LogEntry.objects.get().get_change_message() == "Declared."


def test_an_external_proxy_needs_no_provider(world: World, operator: Client) -> None:
    values = filled(operator, ADD, name="p1", mode="External", endpoint_host="192.0.2.7", zone="typed before switching")
    operator.post(ADD, values)
    assert Proxy.objects.get().spec.declared()["endpoint"] == {"host": "192.0.2.7"}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "No_Such", "Must be at most 253"),
        ("namespace", "a b", "Must be at most 63"),
        ("provider", "", "A Managed proxy needs one"),
        ("port", "70000", "65535"),
        ("port", "many", "whole number"),
        ("attribute_lines", "a=1\nnonsense", "Line 2"),
        ("attribute_lines", "a=1\na=2", "twice"),
        ("attribute_lines", "-bad-=1", "is not a label key"),
        ("max_leases", "0", "greater than or equal to 1"),
        ("drain_seconds", "-1", "greater than or equal to 0"),
        ("health_url", "ftp://example.com", "URL scheme"),
        ("health_timeout_seconds", "31", "Must not be greater than intervalSeconds"),
        ("expected_status", "200, ok", "status codes"),
        ("expected_status", "99", "greater than or equal to 100"),
    ],
)
def test_each_error_is_at_its_field(world: World, operator: Client, field: str, value: str, words: str) -> None:
    response = operator.post(ADD, filled(operator, ADD, **{"name": "p1", field: value}))
    found = errors(response)
    assert list(found) == [field]
    assert words in found[field][0]
    assert not Proxy.objects.exists()


def test_errors_of_several_fields_are_shown_together(world: World, operator: Client) -> None:
    response = operator.post(ADD, filled(operator, ADD, name="", port="0", max_leases="x"))
    assert set(errors(response)) == {"name", "port", "max_leases"}


def test_the_host_of_an_external_proxy_is_checked_at_its_field(world: World, operator: Client) -> None:
    for host, words in (("", "needs one"), ("169.254.169.254", "metadata")):
        response = operator.post(ADD, filled(operator, ADD, name="p1", mode="External", endpoint_host=host))
        assert words in errors(response)["endpoint_host"][0]


def test_a_name_that_is_taken_is_an_error_of_the_name(world: World, operator: Client) -> None:
    world.declare("p1")
    response = operator.post(ADD, filled(operator, ADD, name="p1"))
    assert errors(response) == {"name": ["The proxy default/p1 exists already: delete it, or take another name"]}


def test_editing_changes_what_was_edited_and_nothing_else(world: World, operator: Client) -> None:
    crlf = "Content-Type: multipart/mixed\r\n\r\nas MIME wants it\r\n"
    proxy = world.declare(
        cloudInit={"inline": crlf}, healthCheck={"expectedStatus": [204]}, attributes={"a": "1"}, maxLeases=3
    )
    operator.post(edit(proxy), filled(operator, edit(proxy), max_leases="5"))
    changed = world.read(proxy)
    assert changed.max_leases == 5
    assert changed.cloud_init_inline == crlf, "untouched text keeps its line ends: the instance is not replaced"
    assert (changed.expected_status, changed.attributes, changed.generation) == ([204], {"a": "1"}, 2)
    assert next(event.actor for event in proxy.events.all()) == "the-operator"
    assert LogEntry.objects.get().get_change_message() == "Changed Max leases."


def test_editing_keeps_what_the_form_does_not_show(world: World, operator: Client) -> None:
    proxy = world.declare(
        mode="External", endpoint={"host": "192.0.2.7", "credentialsSecretRef": {"name": "login"}}, port=8080
    )
    operator.post(edit(proxy), filled(operator, edit(proxy), port="8081"))
    assert world.read(proxy).spec.declared()["endpoint"] == {
        "host": "192.0.2.7",
        "credentialsSecretRef": {"name": "login"},
    }


def test_text_takes_the_place_of_a_secret(world: World, operator: Client) -> None:
    proxy = world.declare(cloudInit={"secretRef": {"name": "user-data"}})
    operator.post(edit(proxy), filled(operator, edit(proxy), port="8081"))
    assert world.read(proxy).cloud_init_secret_name == "user-data"
    operator.post(edit(proxy), filled(operator, edit(proxy), cloud_init="#!/bin/sh"))
    assert (world.read(proxy).cloud_init_inline, world.read(proxy).cloud_init_secret_name) == ("#!/bin/sh", "")


def test_two_people_do_not_undo_each_other(world: World, operator: Client) -> None:
    proxy = world.declare()
    values = filled(operator, edit(proxy), max_leases="5")
    operations.update(proxy.pk, {"provider": "mem", "maxLeases": 7}, actor="someone", now=world.now)
    response = operator.post(edit(proxy), values)
    assert "Somebody changed this proxy meanwhile" in errors(response)["__all__"][0]
    assert world.read(proxy).max_leases == 7


def test_a_proxy_that_is_being_deleted_is_not_edited(world: World, operator: Client) -> None:
    proxy = world.declare()
    values = filled(operator, edit(proxy), max_leases="5")
    operations.request_deletion(proxy.pk, actor="someone", now=world.now)
    response = operator.post(edit(proxy), values)
    assert errors(response)["__all__"] == ["default/p1 is being deleted: its spec can't be changed any more."]


def test_a_proxy_that_is_gone_is_said_to_be_gone(world: World, operator: Client) -> None:
    proxy = world.declare()
    values = filled(operator, edit(proxy), max_leases="5")
    gone = proxy.pk
    proxy.delete()
    for url in (reverse("admin:fleet_proxy_change", args=[gone]), reverse("admin:fleet_proxy_edit", args=[gone])):
        assert told(operator.get(url, follow=True))[0] == "This proxy is gone by now."
    response = operator.post(reverse("admin:fleet_proxy_edit", args=[gone]), values, follow=True)
    assert told(response)[0] == "This proxy is gone by now."
    response = operator.post(do("cordon"), {"ids": gone}, follow=True)
    assert f"the proxy with id {gone} is gone by now" in told(response)[0]
    assert told(operator.get(f"{do('delete')}?ids={gone}", follow=True))[0] == "This proxy is gone by now."


def test_deletion_asks_first_and_never_deletes_the_row(world: World, operator: Client) -> None:
    proxy = world.ready(world.declare(drainSeconds=60))
    url = reverse("admin:fleet_proxy_delete", args=[proxy.pk])
    question = operator.get(url, follow=True)
    assert f"Then the instance {proxy.provider_id} is deleted." in question.content.decode()
    assert operator.post(do("delete"), {"ids": proxy.pk}).status_code == 200, "not confirmed: asked again"
    assert world.read(proxy).deletion_requested_at is None
    response = operator.post(do("delete"), {"ids": proxy.pk, "confirmed": "yes"}, follow=True)
    assert told(response) == ["Deletion asked for: default/p1."]
    assert world.read(proxy).deletion_requested_at is not None
    assert ProxyEvent.objects.get(kind="DeletionRequested").actor == "the-operator"
    assert LogEntry.objects.get().is_deletion()


@pytest.mark.parametrize("verb", ["replace", "skip-cleanup", "delete"])
def test_bulk_actions_with_consequences_ask_first(world: World, operator: Client, verb: str) -> None:
    proxies = [world.declare(), world.declare()]
    chosen = {"action": verb, "_selected_action": [proxy.pk for proxy in proxies]}
    question = operator.post(LIST, chosen)
    assert "2 proxies?" in question.content.decode()
    assert ProxyEvent.objects.exclude(kind="Declared").count() == 0
    ids = question.context["ids"]
    operator.post(do(verb), {"ids": ids, "confirmed": "yes"})
    assert ProxyEvent.objects.exclude(kind="Declared").count() == 2


def test_a_bulk_action_says_what_became_of_each(world: World, operator: Client) -> None:
    kept, going = world.declare(), world.declare()
    operations.request_deletion(going.pk, actor="someone", now=world.now)
    chosen = {"action": "cordon", "_selected_action": [kept.pk, going.pk]}
    response = operator.post(LIST, chosen, follow=True)
    assert told(response) == ["Cordoned: default/p1.", "Not done: default/p2 is being deleted."]
    assert (world.read(kept).cordoned, world.read(going).cordoned) == (True, False)


def test_what_is_external_is_not_replaced(world: World, operator: Client) -> None:
    proxy = world.declare(mode="External", endpoint={"host": "192.0.2.7"})
    response = operator.post(do("replace"), {"ids": proxy.pk, "confirmed": "yes"}, follow=True)
    assert "what exists elsewhere can't be replaced from here" in told(response)[0]


def test_probing_and_reconciling(world: World, operator: Client) -> None:
    proxy = world.ready(world.declare())
    world.prober.asked.clear()
    operator.post(do("probe"), {"ids": proxy.pk})
    assert world.prober.asked == [proxy.pk]
    operator.post(do("reconcile"), {"ids": proxy.pk})
    assert world.read(proxy).next_reconcile_at is not None
    assert [entry.get_change_message() for entry in LogEntry.objects.order_by("id")] == [
        "Probe asked for.",
        "Reconcile asked for.",
    ]


def test_a_verb_is_not_done_by_a_link(world: World, operator: Client) -> None:
    proxy = world.declare()
    operator.get(f"{do('cordon')}?ids={proxy.pk}")
    operator.get(f"{do('delete')}?ids={proxy.pk}&confirmed=yes")
    assert (world.read(proxy).cordoned, world.read(proxy).deletion_requested_at) == (False, None)


def test_where_to_go_afterwards_stays_here(world: World, operator: Client) -> None:
    proxy = world.declare()
    response = operator.post(do("cordon"), {"ids": proxy.pk, "next": "https://elsewhere.example/"})
    assert response["Location"] == page(proxy)


def test_a_viewer_looks_and_does_nothing(world: World, sign_in: SignIn) -> None:
    viewer = sign_in(Role.VIEWER)
    proxy = world.ready(world.declare())
    shown = viewer.get(page(proxy))
    assert (shown.status_code, shown.context["verbs"], shown.context["has_change_permission"]) == (200, [], False)
    listed = viewer.get(LIST)
    assert listed.status_code == 200
    assert 'name="action"' not in listed.content.decode()
    for url in (
        ADD,
        edit(proxy),
        do("cordon"),
        do("delete"),
        reverse("admin:fleet_providerstate_dry_run", args=["mem"]),
    ):
        assert viewer.get(url).status_code == 403, url
        assert viewer.post(url, {"ids": proxy.pk, "confirmed": "yes"}).status_code == 403, url
    before = Proxy.objects.values().get()
    viewer.post(LIST, {"action": "cordon", "_selected_action": [proxy.pk]})
    assert Proxy.objects.values().get() == before


def test_a_viewer_reads_no_cloud_init_by_any_url(world: World, sign_in: SignIn, operator: Client) -> None:
    viewer = sign_in(Role.VIEWER)
    proxy = world.ready(world.declare(cloudInit={"inline": SECRET}))
    operator.post(edit(proxy), filled(operator, edit(proxy), cloud_init=f"{SECRET} changed"))
    event = ProxyEvent.objects.first()
    assert event is not None
    for url in (
        page(proxy),
        reverse("admin:fleet_proxy_history", args=[proxy.pk]),
        reverse("admin:fleet_proxyevent_change", args=[event.pk]),
        reverse("admin:fleet_proxyevent_changelist"),
        reverse("admin:index"),
        f"{LIST}?q={SECRET}",
        f"{LIST}?attribute={SECRET}",
        f"{reverse('admin:search')}?s={SECRET}",
    ):
        response = viewer.get(url)
        assert response.status_code == 200, url
        shown = response.content.decode().replace(f'value="{SECRET}"', "").replace(f"={SECRET}", "")
        assert SECRET not in shown, url


@pytest.mark.parametrize(
    "question",
    ["cloud_init_inline__startswith=ssh", "cloud_init_inline__isnull=True", "claim_token__isnull=True"],
)
def test_lists_can_not_be_asked_about_hidden_columns(world: World, sign_in: SignIn, question: str) -> None:
    world.declare(cloudInit={"inline": SECRET})
    viewer = sign_in(Role.VIEWER)
    assert viewer.get(f"{LIST}?{question}").status_code == 400
    events = reverse("admin:fleet_proxyevent_changelist")
    assert viewer.get(f"{events}?proxy__{question}").status_code == 400


def test_the_list_costs_the_same_number_of_queries_however_long(world: World, operator: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert operator.get(f"{LIST}?all=").status_code == 200
        return len(captured)

    for _ in range(3):
        world.declare()
    few = queries()
    for _ in range(57):
        world.declare()
    assert Proxy.objects.count() == 60
    assert queries() == few


def test_the_list_is_filtered_and_searched(world: World, operator: Client) -> None:
    ready = world.ready(world.declare("quick"))
    world.declare("slow")
    for question in ("phase__exact=Ready", "q=quick", f"q={ready.address}", f"q={ready.provider_id}"):
        listed = operator.get(f"{LIST}?{question}").context["cl"].result_list
        assert [proxy.name for proxy in listed] == ["quick"], question
    for question in (
        "phase__exact=Failed",
        "mode__exact=External",
        "provider=other",
        "namespace=x",
        "cordoned__exact=1",
    ):
        assert not operator.get(f"{LIST}?{question}").context["cl"].result_list, question


def test_the_page_tells_the_proxys_story(world: World, operator: Client) -> None:
    proxy = world.ready(world.declare())
    shown = operator.get(page(proxy)).content.decode()
    for words in (
        "Provisioning → Ready",
        "Instance Created",
        proxy.address,
        proxy.provider_id,
        "by test",
        "0 of 10 in use",
    ):
        assert words in shown, words


def test_the_timeline_is_paged(world: World, operator: Client) -> None:
    proxy = world.declare()
    for number in range(60):
        at = world.now + timedelta(seconds=number // 4)  # some of one moment
        (operations.cordon if number % 2 == 0 else operations.uncordon)(proxy.pk, actor="someone", now=at)
    seen, url, pages = [], page(proxy), 0
    while url:
        timeline = operator.get(url).context["timeline"]
        seen += [(entry.at, entry.what) for entry in timeline.entries]
        url, pages = timeline.older_url and page(proxy) + timeline.older_url.partition("#")[0], pages + 1
    assert [at for at, _ in seen] == sorted((at for at, _ in seen), reverse=True)
    assert (len(seen), pages) == (61, 3)


def test_the_timeline_keeps_a_moment_together(world: World, operator: Client) -> None:
    proxy = world.declare()
    for number in range(30):
        (operations.cordon if number % 2 == 0 else operations.uncordon)(proxy.pk, actor="someone", now=world.now)
    assert len(operator.get(page(proxy)).context["timeline"].entries) == 31


def test_a_part_of_the_history_is_looked_at_alone(world: World, operator: Client) -> None:
    proxy = world.ready(world.declare())
    for show, words in (("phases", "Provisioning → Ready"), ("events", "Instance Created"), ("leases", "Nothing")):
        assert words in operator.get(f"{page(proxy)}?show={show}").content.decode(), show
    phases = operator.get(f"{page(proxy)}?show=phases").context["timeline"].entries
    assert [entry.reason for entry in phases] == ["ProbeSucceeded", "Creating"]
    everything = operator.get(page(proxy)).context["timeline"].entries
    for nonsense in ("show=nonsense", "before=nonsense", "before=2026-13-01T00:00:00%2B00:00", "before=2026-01-01"):
        assert operator.get(f"{page(proxy)}?{nonsense}").context["timeline"].entries == everything, nonsense


def test_cloud_init_is_kept_replaced_or_removed_and_never_shown(world: World, operator: Client) -> None:
    proxy = world.declare(cloudInit={"inline": SECRET})
    shown = operator.get(edit(proxy)).content.decode()
    assert SECRET not in shown
    assert f"{len(SECRET)} bytes are declared" in shown
    operator.post(edit(proxy), filled(operator, edit(proxy), max_leases="4"))
    assert world.read(proxy).cloud_init_inline == SECRET
    both = filled(operator, edit(proxy), cloud_init="#!/bin/sh", cloud_init_removed="on")
    assert "do one or the other" in errors(operator.post(edit(proxy), both))["cloud_init_removed"][0]
    operator.post(edit(proxy), filled(operator, edit(proxy), cloud_init="#!/bin/sh\n"))
    assert world.read(proxy).cloud_init_inline == "#!/bin/sh\n"
    operator.post(edit(proxy), filled(operator, edit(proxy), cloud_init_removed="on"))
    assert world.read(proxy).cloud_init_inline is None
    told = [entry.get_change_message() for entry in LogEntry.objects.order_by("id")]
    assert told == ["Changed Max leases.", "Changed Cloud-init.", "Changed Remove the cloud-init."]
    assert not any(SECRET in event.message for event in proxy.events.all())


def test_the_reference_to_a_secret_is_removed(world: World, operator: Client) -> None:
    proxy = world.declare(cloudInit={"secretRef": {"name": "user-data"}})
    operator.post(edit(proxy), filled(operator, edit(proxy), cloud_init_removed="on"))
    assert world.read(proxy).cloud_init_secret_name == ""


def test_the_page_shows_the_instance_as_the_provider_reports_it(world: World, operator: Client) -> None:
    proxy = world.ready(world.declare())
    url = reverse("admin:fleet_proxy_instance", args=[proxy.pk])
    shown = operator.get(url).content.decode()
    for words in ("running", proxy.address, proxy.instance_hash, "as it should be"):
        assert words in shown
    world.backend.faults[Call.GET].append(refuse(Unavailable("the host does not answer")))
    assert "mem can&#x27;t be asked now (Unavailable): the host does not answer" in operator.get(url).content.decode()
    Proxy.objects.filter(pk=proxy.pk).update(provider_id="gone-entry://x/1")
    assert "gone-entry is not in the providers file." in operator.get(url).content.decode()
    Proxy.objects.filter(pk=proxy.pk).update(provider_id="")
    assert operator.get(url).status_code == 404


def _wait(event: threading.Event) -> None:
    event.wait(60)


def test_a_silent_provider_is_given_up(world: World) -> None:
    proxy = world.ready(world.declare())
    silence = threading.Event()

    hang = Fault(before=lambda: _wait(silence))
    world.backend.faults[Call.GET] += [hang] * instance.AT_ONCE
    try:
        for _ in range(instance.AT_ONCE):
            assert instance.ask(proxy.provider_id, wait=0.05).problem == "mem has not answered within 0.05 s."
        assert "Too many questions" in instance.ask(proxy.provider_id, wait=0.05).problem
    finally:
        silence.set()
    deadline = time.monotonic() + 60
    while instance.ask(proxy.provider_id).instance is None:
        assert time.monotonic() < deadline, "those that answered at last make room"
        time.sleep(0.05)


def test_a_check_is_done_by_a_worker(world: World, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr("proxyfleet.fleet.hints.send", lambda task, **kwargs: sent.append((task, kwargs)))
    url = reverse("admin:fleet_providerstate_check", args=["mem"])
    operator.get(url)
    assert not sent, "a link asks for nothing"
    response = operator.post(url, follow=True)
    assert sent == [("health.check_provider", {"queue": "checks", "entry": "mem"})]
    assert told(response) == ["A worker checks mem now; what it finds shows here."]
    assert LogEntry.objects.get().get_change_message() == "Check asked for."
    assert operator.post(reverse("admin:fleet_providerstate_check", args=["nosuch"])).status_code == 404


def test_links_from_records_outlive_their_proxy(world: World, operator: Client) -> None:
    proxy = world.declare()
    url = reverse("admin:fleet_proxy_of_uid", args=[proxy.uid])
    assert operator.get(url)["Location"] == page(proxy)
    Proxy.objects.all().delete()
    assert told(operator.get(url, follow=True)) == ["This proxy is gone by now."]


def test_events_are_read_only(world: World, sign_in: SignIn) -> None:
    admin = sign_in(Role.ADMIN)
    world.declare("quick")
    world.declare("slow")
    url = reverse("admin:fleet_proxyevent_changelist")
    assert [event.name for event in admin.get(f"{url}?q=quick").context["cl"].result_list] == ["quick"]
    assert not admin.get(f"{url}?kind__exact=Cordoned").context["cl"].result_list
    event = ProxyEvent.objects.first()
    assert event is not None
    assert admin.get(reverse("admin:fleet_proxyevent_add")).status_code == 403
    assert admin.post(reverse("admin:fleet_proxyevent_change", args=[event.pk]), {"reason": "x"}).status_code == 403
    assert admin.post(reverse("admin:fleet_proxyevent_delete", args=[event.pk]), {"post": "yes"}).status_code == 403


def test_the_dry_run_names_orphans_and_deletes_none(world: World, operator: Client) -> None:
    proxy = world.ready(world.declare())
    Proxy.objects.filter(pk=proxy.pk).delete()
    url = reverse("admin:fleet_providerstate_dry_run", args=["mem"])
    assert proxy.provider_id in operator.get(url).content.decode()
    assert len(world.live()) == 1
    world.collect_orphans()


def test_a_provider_that_is_down_is_said_to_be_down(world: World, operator: Client) -> None:
    world.backend.faults[Call.LIST].append(refuse(Unavailable("the host does not answer")))
    shown = operator.get(reverse("admin:fleet_providerstate_dry_run", args=["mem"]))
    assert shown.status_code == 200
    assert "mem can&#x27;t be asked now (Unavailable): the host does not answer" in shown.content.decode()


def test_providers_show_their_last_sweep(world: World, operator: Client) -> None:
    proxy = world.ready(world.declare())
    Proxy.objects.filter(pk=proxy.pk).delete()
    assert "never" in operator.get(reverse("admin:fleet_providerstate_changelist")).content.decode()
    world.now = timezone.now()
    world.collect_orphans()
    assert " s ago" in operator.get(reverse("admin:fleet_providerstate_changelist")).content.decode()
    shown = operator.get(reverse("admin:fleet_providerstate_change", args=["mem"])).content.decode()
    assert proxy.provider_id in shown
    assert operator.get(reverse("admin:fleet_providerstate_change", args=["nosuch"])).status_code == 404


def test_providers_show_what_a_check_found(world: World, operator: Client) -> None:
    listing = reverse("admin:fleet_providerstate_changelist")
    assert "not checked yet" in operator.get(listing).content.decode()
    target = {"name": "host1", "ready": False, "reason": "PoolNotFound", "message": "no pool <default>"}
    ProviderState.objects.create(
        entry="mem",
        check_ready=False,
        check_reason="PoolNotFound",
        check_message="no pool <default>",
        check_targets=[target | {"lastTransitionTime": "2026-01-01T00:00:00Z"}],
        check_changed_at=world.now,
    )
    assert "PoolNotFound" in operator.get(listing).content.decode()
    shown = operator.get(reverse("admin:fleet_providerstate_change", args=["mem"])).content.decode()
    for words in ("host1", "PoolNotFound", "no pool &lt;default&gt;"):
        assert words in shown


def test_roles_grow(db: None) -> None:
    def permissions(role: Role) -> set[str]:
        return set(Group.objects.get(name=role).permissions.values_list("codename", flat=True))

    viewer, operator, admin = (permissions(role) for role in Role)
    assert viewer < operator < admin
    assert all(codename.startswith("view_") for codename in viewer)
    assert {"change_proxy", "change_lease"} <= operator
    assert {"add_user", "add_apitoken"} <= admin - operator

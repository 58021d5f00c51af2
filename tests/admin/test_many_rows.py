"""Hundreds of thousands of rows: no page counts them, skips over them or reads more than its bound."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from leasing.models import Cooldown, Lease, Report
from leasing.tests.fleet import make_proxy
from proxyfleet.fleet.admin.keyset import WINDOW
from proxyfleet.fleet.models import Proxy, ProxyEvent
from proxyfleet.fleet.roles import Role

ROWS = 200_000
RARE = 50
"""Rows of the needle: among the oldest."""

PLAIN = 1_000
"""Rows that a page may read without a question: its own, those of the sidebar, the session and the like."""

EVENTS = f"""
INSERT INTO fleet_proxyevent (proxy_uid, namespace, name, at, kind, reason, message, old_phase, new_phase, actor)
SELECT gen_random_uuid(), 'default', CASE WHEN n <= {RARE} THEN 'needle-' ELSE 'crawl-eu-' END || n,
    now() - ({ROWS} - n) * interval '1 second',
    CASE WHEN n <= {RARE} THEN 'OrphanDeleted' ELSE 'HealthChanged' END, 'Timeout', '', '', '', ''
FROM generate_series(1, {ROWS}) n
"""
REPORTS = f"""
INSERT INTO leasing_report (lease_id, proxy_uid, namespace, name, target, result, at)
SELECT gen_random_uuid(), gen_random_uuid(), 'default', 'crawl-eu-' || n % 1000,
    CASE WHEN n <= {RARE} THEN 'needle.example' ELSE 'shop-' || n % 500 || '.example' END,
    CASE WHEN n <= {RARE} THEN 'blocked' ELSE 'ok' END, now() - ({ROWS} - n) * interval '1 second'
FROM generate_series(1, {ROWS}) n
"""
# The ids grow with time, as those of UUIDv7 do.
ENDED = f"""
INSERT INTO leasing_endedlease (id, proxy_uid, namespace, name, owner, client, target, created_at, ended_at, cause)
SELECT ('01a00000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, gen_random_uuid(), 'default',
    'crawl-eu-' || n % 1000, '', CASE WHEN n <= {RARE} THEN 'needle' ELSE 'worker-' || n % 9 END, 'shop.example',
    now(), now(), CASE WHEN n <= {RARE} THEN 'instance_lost' ELSE 'released' END
FROM generate_series(1, {ROWS}) n
"""
LEASES = f"""
INSERT INTO leasing_lease (id, proxy_id, owner, client, target, created_at, expires_at)
SELECT ('01a00000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, %(proxy)s, '',
    CASE WHEN n <= {RARE} THEN 'needle' ELSE 'worker-' || n %% 9 END, 'shop.example', now(), now() + interval '1 hour'
FROM generate_series(1, {ROWS}) n
"""
COOLDOWNS = f"""
INSERT INTO leasing_cooldown (proxy_id, target, until)
SELECT %(proxy)s, CASE WHEN n <= {RARE} THEN 'needle-' ELSE 'shop-' END || n || '.example', now() + interval '1 hour'
FROM generate_series(1, {ROWS}) n
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def client(db: None) -> Client:
    user = User.objects.create_user("olive", is_staff=True)
    user.groups.add(Group.objects.get(name=Role.ADMIN))
    client = Client(SERVER_NAME="localhost")
    client.force_login(user)
    return client


def listing(model: str) -> str:
    return reverse(f"admin:{model}_changelist")


def fill(statement: str, table: str) -> None:
    proxy = make_proxy("a")
    with connection.cursor() as cursor:
        cursor.execute(statement, {"proxy": proxy.pk} if "%(proxy)s" in statement else None)
        cursor.execute(f"ANALYZE {table}")


def look(client: Client, url: str, table: str) -> tuple[Any, int]:
    """The change list at ``url``, and how many of the table's rows were read for it."""
    with CaptureQueriesContext(
        connection,
    ) as captured:
        response = client.get(url)
    assert response.status_code == 200
    asked = [query["sql"] for query in captured if f'"{table}"' in query["sql"]]
    assert asked
    for sql in asked:
        assert "COUNT(" not in sql.upper(), sql
        assert "OFFSET" not in sql.upper(), sql
    return response.context["cl"], sum(rows_read(sql, table) for sql in asked)


def rows_read(sql: str, table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql.replace('%', '%%')}", [])
        (plan,) = cursor.fetchone()
    (root,) = json.loads(plan) if isinstance(plan, str) else plan
    return sum(_of(node, table) for node in _nodes(root["Plan"]))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def _of(node: dict[str, Any], table: str) -> int:
    if node.get("Relation Name") != table:
        return 0
    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int(read * node["Actual Loops"])


def walk(client: Client, url: str, table: str, *, pages: int, bound: int) -> list[Any]:
    """Older for some pages, and newer again: the same rows in the same order, none twice, each page within bounds."""
    down = []
    cl, read = look(client, url, table)
    for _ in range(pages):
        assert read <= bound
        down.append((cl.older_url, [row.pk for row in cl.result_list]))
        if cl.older_url is None:
            break
        cl, read = look(client, url.partition("?")[0] + cl.older_url, table)
    keys = [key for _, page in down for key in page]
    assert len(set(keys)) == len(keys)
    assert keys == sorted(keys, reverse=True)
    for _, page in reversed(down):
        assert cl.newer_url is not None
        cl, read = look(client, url.partition("?")[0] + cl.newer_url, table)
        assert read <= bound
        assert [row.pk for row in cl.result_list] == page
    assert cl.newer_url is None
    return keys


def test_events(client: Client) -> None:
    fill(EVENTS, "fleet_proxyevent")
    url, table = listing("fleet_proxyevent"), "fleet_proxyevent"
    assert len(walk(client, url, table, pages=4, bound=PLAIN)) == 200
    # What is everywhere is found at once; the window's keys are read from the index.
    walk(client, f"{url}?q=crawl", table, pages=3, bound=WINDOW + PLAIN)
    walk(client, f"{url}?kind__exact=HealthChanged", table, pages=3, bound=WINDOW + PLAIN)
    # What is rare and old is found by the index of names, or of kinds.
    for question in ("q=needle", "kind__exact=OrphanDeleted", "q=needle&kind__exact=OrphanDeleted", "q=default/needle"):
        cl, read = look(client, f"{url}?{question}", table)
        assert len(cl.result_list) == RARE, question
        assert read <= 2 * WINDOW + PLAIN, question
        assert (cl.older_url, cl.newer_url) == (None, None)
    cl, read = look(client, f"{url}?q=no-such-name", table)
    assert not cl.result_list
    assert read <= 2 * WINDOW + PLAIN
    one = ProxyEvent.objects.order_by("id")[1000]
    cl, read = look(client, f"{url}?proxy_uid={one.proxy_uid}", table)
    assert [row.pk for row in cl.result_list] == [one.pk]
    assert read <= PLAIN


@pytest.mark.parametrize(
    ("model", "statement", "rare"),
    [
        ("leasing_report", REPORTS, ["result__exact=blocked", "q=needle"]),
        ("leasing_endedlease", ENDED, ["cause__exact=instance_lost", "q=needle"]),
        ("leasing_lease", LEASES, ["q=needle"]),
        ("leasing_cooldown", COOLDOWNS, ["q=needle"]),
    ],
)
def test_records(client: Client, model: str, statement: str, rare: list[str]) -> None:
    fill(statement, model)
    url = listing(model)
    assert len(walk(client, url, model, pages=4, bound=PLAIN)) == 200
    walk(
        client, f"{url}?q=example", model, pages=2, bound=2 * WINDOW + PLAIN
    ) if model != "leasing_endedlease" else None
    for question in rare:
        pages = [look(client, f"{url}?{question}", model)]
        while (older := pages[-1][0].older_url) is not None:
            pages.append(look(client, url + older, model))
        # Each request goes on where the one before stopped, until the oldest rows, where they are.
        assert len(pages) == ROWS // WINDOW
        assert all(read <= 2 * WINDOW + PLAIN for _, read in pages)
        assert [len(cl.result_list) for cl, _ in pages] == [0, 0, 0, RARE]
        assert [cl.page.is_unfinished for cl, _ in pages] == [True, True, True, False]


def test_reports_and_cooldowns_of_one_target(client: Client) -> None:
    fill(REPORTS, "leasing_report")
    cl, read = look(client, f"{listing('leasing_report')}?target=needle.example", "leasing_report")
    assert (len(cl.result_list), read <= PLAIN) == (RARE, True)
    with CaptureQueriesContext(connection) as captured:
        page = client.get(reverse("admin:leasing_target_page", args=["needle.example"]))
    assert "needle.example" in page.content.decode()
    asked = [query["sql"] for query in captured if '"leasing_report"' in query["sql"]]
    assert sum(rows_read(sql, "leasing_report") for sql in asked) <= PLAIN


def test_ten_thousand_proxies(client: Client) -> None:
    """As many queries as for a handful, and one page of rows."""
    first = make_proxy("p-0", attributes={"geo": "eu"})

    def queries(url: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url).status_code == 200
        return len(captured)

    url = listing("fleet_proxy")
    questions = [url, f"{url}?q=p-", f"{url}?attribute=geo%3Deu", f"{url}?phase__exact=Ready&provider=east"]
    few = [queries(question) for question in questions]
    Proxy.objects.bulk_create(
        Proxy(name=f"p-{number}", provider="east", phase="Ready", attributes={"geo": "us"})
        for number in range(1, 10_000)
    )
    assert [queries(question) for question in questions] == few
    found = client.get(f"{url}?attribute=geo%3Deu").context["cl"]
    assert [proxy.pk for proxy in found.result_list] == [first.pk]
    assert client.get(f"{url}?attribute=geo").context["cl"].result_count == 10_000
    assert client.get(f"{url}?attribute=geo%3Dus,tier").context["cl"].result_count == 0


def test_what_no_column_can_hold_is_asked_for_in_vain(client: Client) -> None:
    proxies, targets = listing("fleet_proxy"), reverse("admin:leasing_target_list")
    for url in (
        *(f"{proxies}?attribute=%00", f"{proxies}?attribute=a%3D%00", f"{proxies}?q=%00", f"{proxies}?attribute=,=,"),
        *(f"{targets}?q=%00", f"{targets}?q=%25_", f"{targets}?after=%00&cooling=1&reports=1"),
        *(f"{targets}?after=a&cooling=x", f"{listing('fleet_proxyevent')}?before=99999999999999999999&q=a"),
    ):
        assert client.get(url).status_code == 200, url
    assert client.get(f"{targets}a%00b/").status_code == 404


def test_a_broken_place_in_a_list_is_no_error(client: Client) -> None:
    for model in ("fleet_proxyevent", "leasing_lease"):
        response = client.get(f"{listing(model)}?before=nonsense")
        assert response.status_code == 302
    assert (Lease.objects.count(), Cooldown.objects.count(), Report.objects.count()) == (0, 0, 0)

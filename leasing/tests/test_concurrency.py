"""Many processes lease at once. Whatever they do, every look at the database must find the books in order."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import pytest
from django.db import connection

from leasing.models import Lease, ProxyLoad
from leasing.tests.fleet import make_proxy
from leasing.tests.orders import Orders
from leasing.tests.processes import environment

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

PROCESSES, CLIENTS = 4, 8

# One statement, thus one snapshot: what is counted and what is there must agree at every moment.
_DISORDER = """
select load.proxy_id, load.active, load.max_leases, load.leasable, count(lease.id)
from leasing_proxyload load left join leasing_lease lease using (proxy_id)
group by load.proxy_id
having load.active <> count(lease.id) or load.active > load.max_leases or (load.active > 0 and not load.leasable)
"""


class Process:
    """A process of its own that carries out one order after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "leasing.tests.load_client"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout

    def send(self, line: str) -> None:
        self._orders.write(line + "\n")
        self._orders.flush()

    @property
    def has_answered(self) -> bool:
        return bool(select.select([self._answers], [], [], 0)[0])

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._answers.readline())
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def processes(django_db_setup: None) -> Iterator[list[Process]]:
    with ExitStack() as stack:
        started = [Process() for _ in range(PROCESSES + 1)]
        for process in started:
            stack.callback(process.close)
        yield started


def run(processes: Sequence[Process], *orders: Orders) -> Counter[str]:
    """Have each of the orders carried out by a process, watching the books. Returns the sums of what they saw."""
    seen: Counter[str] = Counter()
    errors: list[str] = []
    at_work = list(zip(processes, orders, strict=False))
    for process, order in at_work:
        process.send(json.dumps(asdict(order)))
    while not all(process.has_answered for process, order in at_work if order.role == "lease"):
        assert _disorder() == []
        seen["looks"] += 1
    for process, order in at_work:
        if order.role != "lease":
            process.send("stop")
        answer = process.answer()
        seen.update(answer["seen"])
        errors += answer["errors"]
    assert errors == []
    assert _disorder() == []
    return seen


def _disorder() -> Sequence[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(_DISORDER)
        rows: list[tuple[object, ...]] = cursor.fetchall()
    return rows


def make_fleet(proxies: int, max_leases: int) -> None:
    for number in range(proxies):
        make_proxy(f"p{number}", max_leases=max_leases)


@pytest.mark.parametrize(("proxies", "max_leases"), [(32, 1), (1, 32), (8, 4)])
def test_nobody_hears_none_while_there_is_a_slot_for_everyone(
    processes: list[Process], proxies: int, max_leases: int
) -> None:
    make_fleet(proxies, max_leases)
    seen = run(processes, *[Orders(clients=CLIENTS)] * PROCESSES)
    assert seen["none"] == 0
    assert seen["granted"] == PROCESSES * CLIENTS * Orders().rounds
    assert seen["looks"] > 0


@pytest.mark.parametrize(("proxies", "max_leases"), [(20, 1), (1, 20), (5, 4)])
def test_no_proxy_is_leased_too_often_when_there_are_more_clients_than_slots(
    processes: list[Process], proxies: int, max_leases: int
) -> None:
    make_fleet(proxies, max_leases)
    seen = run(processes, *[Orders(clients=CLIENTS)] * PROCESSES)
    assert seen["granted"] + seen["none"] == PROCESSES * CLIENTS * Orders().rounds
    assert Lease.objects.count() == 0


def test_batches_the_sweeper_and_lost_proxies_keep_the_books_in_order(processes: list[Process]) -> None:
    make_fleet(5, 4)
    seen = run(
        processes,
        Orders(clients=CLIENTS, largest_batch=4),
        Orders(clients=CLIENTS, largest_batch=4, ttl_milliseconds=1),
        Orders(clients=CLIENTS),
        Orders(role="sweep", clients=2),
        Orders(role="recycle", clients=2),
    )
    assert seen["granted"] > 0
    assert seen["expired"] > 0
    assert seen["ended"] > 0
    assert (seen["survived"], seen["not distinct"]) == (0, 0)
    assert not ProxyLoad.objects.exclude(active=0).exists()

"""A storm: clients that lease from several processes, on a fleet that changes, while processes are killed."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg

from tests.api_processes import Deployment
from tests.storm.clients import Client, Crawler, Notes
from tests.storm.judge import Span, Unrest, false_refusals, granted_while_not_leasable, over_grants

CLIENTS = 32
UNSTEADY = 2
"""Proxies of each fleet that are cordoned, lost, replaced, deleted and so on, beside those that stay."""

# One statement, thus one snapshot: what is counted and what is there must agree at every moment.
_DISORDER = """
select load.proxy_id, load.active, load.ceiling, count(lease.id)
from leasing_proxyload load left join leasing_lease lease using (proxy_id)
group by load.proxy_id having load.active <> count(lease.id) or load.active > load.ceiling
"""
_DEADLOCKS = "select sum(deadlocks) from pg_stat_database"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Proxies that stay as they are, and how many leases each of its proxies takes."""

    name: str
    proxies: int
    leases: int

    @property
    def slots(self) -> int:
        return self.proxies * self.leases


@dataclass(frozen=True, slots=True)
class Aftermath:
    fleet: Fleet
    notes: Notes
    unrest: Unrest
    acts: Counter[str]
    looks: int
    """At the whole of the books, while it went on."""
    disorder: list[tuple[object, ...]]
    deadlocks: int

    def findings(self) -> dict[str, object]:
        """All that must not be, by kind."""
        steady = [lease for lease in self.notes.told if not lease.proxy.startswith(_unsteady(self.fleet))]
        return {
            "over-grants": over_grants(self.notes.told, self.fleet.leases),
            "false refusals": false_refusals(self.notes.refused, steady, self.fleet.slots),
            "leased while not leasable": granted_while_not_leasable(self.notes.told, self.unrest),
            "disorder": self.disorder,
            "deadlocks": self.deadlocks,
        }

    def __str__(self) -> str:
        found = {kind: found if isinstance(found, int) else len(found) for kind, found in self.findings().items()}  # type: ignore[arg-type]
        events = {**self.notes.events, "refused": len(self.notes.refused)}
        return f"{self.fleet.name}: {events}; {dict(self.acts)}; {self.looks} looks; found {found}"


def storm(deployment: Deployment, fleet: Fleet, seconds: float, *, largest_batch: int, victim: int) -> Aftermath:
    """After a third of the time the process ``victim`` and the sweeper are killed; after two thirds they are back."""
    notes, unrest, acts = Notes(), Unrest(), Counter[str]()
    with ExitStack() as stack:
        books = stack.enter_context(_watched(deployment))
        stack.enter_context(_disturbed(deployment, fleet, unrest, acts))
        sweeper = stack.enter_context(_swept(deployment))
        pool = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        begin = time.time()
        clients = [Client(deployment.addresses, number) for number in range(CLIENTS)]
        for client in clients:
            stack.callback(client.close)
        crawls = [
            pool.submit(Crawler(client, fleet.name, largest_batch, notes).crawl, begin + seconds) for client in clients
        ]
        time.sleep(seconds / 3)
        deployment.kill(victim)
        sweeper.kill()
        time.sleep(seconds / 3)
        stack.enter_context(_swept(deployment))
        deployment.restart(victim)
        for crawl in crawls:
            crawl.result()
    return Aftermath(fleet, notes, unrest, acts, books.looks, books.disorder, books.deadlocks)


def _unsteady(fleet: Fleet) -> str:
    return f"default/{fleet.name}-"


@contextmanager
def _disturbed(deployment: Deployment, fleet: Fleet, unrest: Unrest, acts: Counter[str]) -> Iterator[None]:
    size = ("--proxies", str(UNSTEADY), "--leases", str(fleet.leases))
    plane = deployment.program("tests.storm.control_plane", fleet.name, *size)
    assert plane.stdin is not None
    assert plane.stdout is not None
    try:
        assert plane.stdout.readline() == "ready\n"
        told: list[str] = []
        listening = threading.Thread(target=lambda: told.extend(plane.stdout or ()))
        listening.start()
        yield
        plane.stdin.close()
        listening.join()
        assert plane.wait(60) == 0
        for line in told:
            act = json.loads(line)
            acts[act["what"]] += 1
            if act["proxy"]:
                unrest.not_leasable[act["proxy"]].append(Span(act["begin"], act["end"]))
    finally:
        _end(plane)


@contextmanager
def _swept(deployment: Deployment) -> Iterator[subprocess.Popen[str]]:
    sweeper = deployment.program("tests.storm.sweeper")
    try:
        yield sweeper
    finally:
        _end(sweeper)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


class _Books:
    def __init__(self, url: str) -> None:
        self.looks = 0
        self.disorder: list[tuple[object, ...]] = []
        self._database = psycopg.connect(url, autocommit=True)
        self._before = self._count_deadlocks()
        self.deadlocks = 0
        self._done = threading.Event()

    def watch(self) -> None:
        while not self._done.wait(0.02):
            self.disorder += self._database.execute(_DISORDER).fetchall()
            self.looks += 1

    def close(self) -> None:
        self._done.set()

    def add_up(self) -> None:
        self.disorder += self._database.execute(_DISORDER).fetchall()
        self.deadlocks = self._count_deadlocks() - self._before
        self._database.close()

    def _count_deadlocks(self) -> int:
        row = self._database.execute(_DEADLOCKS).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def _watched(deployment: Deployment) -> Iterator[_Books]:
    books = _Books(deployment.environment["PROXYFLEET_DATABASE_URL"])
    watching = threading.Thread(target=books.watch)
    watching.start()
    try:
        yield books
    finally:
        books.close()
        watching.join()
        books.add_up()

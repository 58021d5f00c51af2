"""The engine as workers run it: real PostgreSQL, real broker, real sockets."""

from __future__ import annotations

import asyncio
import base64
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from celery import current_app
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from health import engine, turns
from health.engine import open_descriptors, probe_due
from health.folding import fold
from health.prompt import CeleryProber, ask
from health.results import Measured, Outcome, ProbeResult, Stage
from health.tasks import probe_due as probe_task
from health.tests.fleet import add_proxies, peer
from health.tests.peers import Peer, answer, stay_silent
from proxyfleet.fleet.models import MirroredSecret, ProviderState, Proxy, ProxyEvent, SecretUse

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WHOAMI = b"HTTP/1.1 200 OK\r\n\r\n203.0.113.9"


@pytest.fixture(autouse=True)
def _empty_broker() -> Iterator[None]:
    current_app.control.purge()
    yield
    current_app.control.purge()


def messages(queue: str) -> list[dict[str, Any]]:
    """Take the messages of a queue: task name and arguments."""
    taken = []
    with current_app.connection_for_read() as broker:
        channel: Any = broker.default_channel
        while message := channel.basic_get(queue, no_ack=True):
            taken.append({"task": message.headers["task"], **message.decode()[1]})
    return taken


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """Do it beside the test, with a database connection of its own."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def wait_until(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def test_due_proxies_get_their_verdict() -> None:
    with peer(answer(WHOAMI)) as port, peer(answer(b"HTTP/1.1 500 X\r\n\r\n")) as bad_port:
        good = add_proxies(20, address_port=port, health_interval_seconds=86_400)
        [bad] = add_proxies(1, address_port=bad_port, failure_threshold=1, health_interval_seconds=86_400)
        assert probe_due("external", NOW) == 21
        assert probe_due("external", NOW) == 0
    verdicts = dict(Proxy.objects.values_list("pk", "verdict"))
    assert verdicts == {proxy.pk: "healthy" for proxy in good} | {bad.pk: "unhealthy"}
    assert ProxyEvent.objects.filter(kind="HealthChanged").count() == 21
    assert ProxyEvent.objects.filter(kind="EgressShared").count() == 20
    assert {"task": "fleet.reconcile", "entry": "external"} in messages("provider.external")
    bad.refresh_from_db()
    assert (bad.last_outcome, bad.next_reconcile_at is not None) == ("BadStatus", True)


def test_a_slow_proxy_delays_neither_a_verdict_nor_the_next_probe_of_another() -> None:
    with peer(answer(WHOAMI)) as port, peer(stay_silent) as blackhole:
        [slow] = add_proxies(
            1, address_port=blackhole, health_timeout_seconds=6, health_interval_seconds=6, failure_threshold=1
        )
        add_proxies(10, address_port=port, success_threshold=3, health_interval_seconds=1, health_timeout_seconds=1)
        turn = in_thread(lambda: probe_due("external", NOW))
        # Three probes of each of the others, while the one that is slow still runs.
        wait_until(lambda: Proxy.objects.filter(verdict="healthy").count() == 10)
        slow.refresh_from_db()
        assert slow.verdict == "unknown"
        assert probe_due("external", NOW + timedelta(seconds=5)) == 0
        assert _sessions("state LIKE 'idle in transaction%'") == 0
        Proxy.objects.exclude(pk=slow.pk).update(deletion_requested_at=NOW)
        turn.join(timeout=30)
    slow.refresh_from_db()
    assert (slow.verdict, slow.last_outcome) == ("unhealthy", "Timeout")
    assert slow.health_changed_at is not None
    assert slow.health_changed_at >= NOW + timedelta(seconds=6)
    assert ProviderState.objects.get().probe_claim_token is None


def test_a_turn_that_is_over_lets_the_next_begin_and_ends_its_own_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "TAKE_FOR", timedelta(seconds=1))
    with peer(answer(WHOAMI)) as port, peer(stay_silent) as blackhole:
        [slow] = add_proxies(1, address_port=blackhole, health_timeout_seconds=15, failure_threshold=1)
        add_proxies(10, address_port=port, health_interval_seconds=5, health_timeout_seconds=5)
        turn = in_thread(lambda: probe_due("external", NOW))
        wait_until(lambda: bool(ProviderState.objects.filter(probe_claim_token=None).exclude(probes_left_running=[])))
        # An interval later, as if no time had passed: the others are due, and one runs still.
        Proxy.objects.filter(pk=slow.pk).update(health_interval_seconds=5)
        assert probe_due("external", NOW + timedelta(seconds=8)) >= 10
        slow.refresh_from_db()
        assert slow.verdict == "unknown"
        turn.join(timeout=30)
    slow.refresh_from_db()
    assert slow.last_outcome == "Timeout"
    assert ProviderState.objects.get().probes_left_running == []


def test_results_wait_for_a_database_that_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session is ended, as a restart does, each time before results are written, twice at least."""
    ended: list[int] = []

    def fold_without_database(*arguments: Any) -> None:
        if len(ended) < 2:
            ended.append(1)
            with psycopg.connect(_database_url(), autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        fold(*arguments)

    monkeypatch.setattr(engine, "fold", fold_without_database)
    with peer(answer(WHOAMI)) as port:
        add_proxies(20, address_port=port, health_interval_seconds=86_400)
        assert probe_due("external", NOW) == 20
    assert len(ended) == 2
    assert Proxy.objects.filter(verdict="healthy", probe_successes=1).count() == 20


def test_a_database_that_stays_away_ends_the_turn_and_its_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr(engine, "fold", away)
    monkeypatch.setattr(engine, "_DATABASE_PATIENCE_SECONDS", 1.0)
    with peer(answer(WHOAMI)) as port, peer(stay_silent) as blackhole:
        add_proxies(5, address_port=port)
        add_proxies(5, address_port=blackhole, health_timeout_seconds=100, health_interval_seconds=100)
        began = time.monotonic()
        with pytest.raises(OperationalError):
            probe_due("external", NOW)
        assert time.monotonic() - began < 60, "it does not wait for what it can't write"
    assert threads_of_probes() == []
    monkeypatch.undo()
    turn = turns.begin("external", NOW + timedelta(seconds=5))
    assert turn is not None
    assert len(turns.take(turn, NOW + timedelta(seconds=5), running={})) == 10, "all are still due"


def test_a_worker_that_was_killed_loses_no_probe() -> None:
    with peer(answer(WHOAMI)) as port, peer(stay_silent) as blackhole:
        add_proxies(5, address_port=port, health_interval_seconds=86_400)
        add_proxies(1, address_port=blackhole, health_interval_seconds=86_400, health_timeout_seconds=60)
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER], env=os.environ | {"PROXYFLEET_DATABASE_URL": _database_url()}
        )
        try:
            wait_until(lambda: Proxy.objects.filter(verdict="healthy").count() == 5, seconds=60)
        finally:
            worker.kill()
            worker.wait()
        now = timezone.now()
        assert turns.begin("external", now) is None
        turn = turns.begin("external", now + turns.CLAIM)
        assert turn is not None
        due = turns.take(turn, now + turns.CLAIM, running={})
    silent = Proxy.objects.get(verdict="unknown")
    assert silent.pk in {each.proxy.pk for each in due}


_WORKER = """
import django
django.setup()
from django.utils import timezone
from health.engine import probe_due
probe_due("external", timezone.now())
"""


def threads_of_probes() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "probes"]


def _database_url() -> str:
    """Of the database of this very test."""
    of_all, _, _ = os.environ["PROXYFLEET_DATABASE_URL"].partition("?")
    parts = connection.settings_dict
    base, _, _ = of_all.rpartition("/")
    return f"{base}/{parts['NAME']}" + os.environ["PROXYFLEET_DATABASE_URL"][len(of_all) :]


@pytest.mark.parametrize("may_have_more", [False, True])
def test_more_proxies_than_descriptors_are_probed_all_the_same(
    monkeypatch: pytest.MonkeyPatch, may_have_more: bool
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 200
    with socket.create_server(("127.0.0.1", 0), backlog=1) as never_accepts:
        port = never_accepts.getsockname()[1]
        add_proxies(
            many, address_port=port, health_timeout_seconds=1, health_interval_seconds=86_400, failure_threshold=1
        )
        allowed = open_descriptors() + many // 2
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, before[1]))
        if not may_have_more:
            # A hard limit that was lowered stays so: this process only believes that it was.
            monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
        try:
            assert probe_due("external", NOW) == many
            assert (resource.getrlimit(resource.RLIMIT_NOFILE)[0] > allowed) is may_have_more
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert Proxy.objects.filter(last_outcome="Timeout").count() == many


def test_two_results_at_once_both_count() -> None:
    [proxy] = add_proxies(1)
    failed = ProbeResult(Measured(proxy.pk, 1), Outcome.TIMEOUT, Stage.CONNECT, {}, "it was slow")
    with transaction.atomic():
        fold([failed], NOW)
        other = in_thread(lambda: fold([failed], NOW))
        wait_until(lambda: _sessions("wait_event_type = 'Lock'") == 1)
    other.join(timeout=30)
    proxy.refresh_from_db()
    assert proxy.probe_failures == 2


def _sessions(condition: str) -> int:
    """Other sessions of the database that are in this state."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            f" WHERE datname = current_database() AND pid <> pg_backend_pid() AND {condition}"
        )
        return int(cursor.fetchone()[0])


def test_a_prompt_probe_does_not_wait_for_its_slot() -> None:
    with peer(answer(WHOAMI)) as port:
        asked, other = add_proxies(2, address_port=port, health_interval_seconds=86_400)
        [unreachable] = add_proxies(1, address="", address_port=None)
        ProviderState.objects.create(entry="external", probed_until=NOW)
        ask([asked.pk, unreachable.pk, 10**9])
        assert probe_due("external", NOW) == 1
    asked.refresh_from_db()
    other.refresh_from_db()
    assert (asked.verdict, asked.egress_ip) == ("healthy", "203.0.113.9")
    assert other.verdict == "unknown"


def test_a_prompt_probe_is_taken_up_by_the_turn_that_runs() -> None:
    with peer(answer(WHOAMI)) as port, peer(stay_silent) as blackhole:
        add_proxies(1, address_port=blackhole, health_timeout_seconds=8)
        [asked] = add_proxies(1, address_port=port, address="", health_interval_seconds=86_400)
        turn = in_thread(lambda: probe_due("external", NOW))
        wait_until(lambda: ProviderState.objects.exclude(probe_claim_token=None).exists())
        Proxy.objects.filter(pk=asked.pk).update(address="127.0.0.1")
        ask([asked.pk])
        wait_until(lambda: Proxy.objects.filter(pk=asked.pk, verdict="healthy").exists())
        turn.join(timeout=30)


def test_many_reports_at_once_cost_few_probes_and_one_message() -> None:
    """From eight threads, on ten proxies, while they are probed."""
    seen: list[float] = []

    async def proxy_that_counts(each: Peer) -> None:
        await each.read_head()
        seen.append(time.monotonic())
        await asyncio.sleep(0.5)
        await each.send(WHOAMI)

    with peer(proxy_that_counts) as port:
        proxies = add_proxies(10, address_port=port, health_interval_seconds=86_400)
        ids = [proxy.pk for proxy in proxies]
        ProviderState.objects.create(entry="external", probed_until=NOW)
        prober = CeleryProber()

        def report_all() -> None:
            for pk in ids * 20:
                prober.probe_soon([pk])

        reports = [in_thread(report_all) for _ in range(8)]
        for report in reports:
            report.join(timeout=60)
        assert len(messages("provider.external")) == 10, "1,600 reports, before the first probe"
        assert probe_due("external", NOW) == 10
    assert len(seen) == 10


def test_a_prompt_probe_is_asked_of_the_entrys_worker_once_the_transaction_commits() -> None:
    [external, other] = add_proxies(2)
    prober = CeleryProber()
    with transaction.atomic():
        prober.probe_soon([external.pk])
        assert messages("provider.external") == []
    assert messages("provider.external") == [{"task": "health.probe_due", "entry": "external"}]
    prober.probe_soon([external.pk])
    assert messages("provider.external") == [], "it waits for one already"
    with transaction.atomic():
        prober.probe_soon([other.pk])
        transaction.set_rollback(rollback=True)
    assert messages("provider.external") == []


def test_tasks_answer_to_the_names_of_the_schedule() -> None:
    assert "health.probe_due" in current_app.tasks
    assert probe_task(entry="external") == 0


def test_credentials_come_from_the_mirrored_secret() -> None:
    asked: list[bytes] = []

    async def proxy_that_listens(peer: Peer) -> None:
        asked.append(await peer.read_head())
        await peer.send(WHOAMI)

    with peer(proxy_that_listens) as port:
        (proxy,) = add_proxies(address_port=port, credentials_secret_name="login", failure_threshold=1)
        ask([proxy.pk])
        probe_due("external", NOW)
        proxy.refresh_from_db()
        assert (proxy.verdict, proxy.last_outcome) == ("unhealthy", "CredentialsMissing")
        assert "credentialsSecretRef: the Secret default/login can't be read" in proxy.health_message
        assert asked == []

        data = {name: base64.b64encode(name.encode()).decode() for name in ("username", "password")}
        MirroredSecret.objects.create(namespace="default", name="login", use=SecretUse.CREDENTIALS, data=data)
        ask([proxy.pk])
        probe_due("external", NOW)
        proxy.refresh_from_db()
        assert proxy.verdict == "healthy"
        assert b"Proxy-Authorization: Basic " + base64.b64encode(b"username:password") in asked[0]

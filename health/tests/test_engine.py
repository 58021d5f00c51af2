"""The engine as workers run it: real PostgreSQL, real broker, real sockets."""

from __future__ import annotations

import base64
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import current_app
from django.db import connection, transaction

from health.engine import CeleryProber, open_descriptors, probe_due, probe_now
from health.folding import Measured, fold
from health.results import Outcome, ProbeResult, Stage
from health.tasks import probe as probe_task
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


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def test_due_proxies_get_their_verdict() -> None:
    with peer(answer(WHOAMI)) as port, peer(answer(b"HTTP/1.1 500 X\r\n\r\n")) as bad_port:
        good = add_proxies(20, address_port=port)
        [bad] = add_proxies(1, address_port=bad_port, failure_threshold=1)
        assert probe_due("external", NOW) == 21
        assert probe_due("external", NOW) == 0
    verdicts = dict(Proxy.objects.values_list("pk", "verdict"))
    assert verdicts == {proxy.pk: "healthy" for proxy in good} | {bad.pk: "unhealthy"}
    assert ProxyEvent.objects.count() == 21
    assert {"task": "fleet.reconcile", "entry": "external"} in messages("provider.external")
    bad.refresh_from_db()
    assert (bad.last_outcome, bad.next_reconcile_at is not None) == ("BadStatus", True)


def test_a_slow_proxy_delays_nobody_elses_verdict_and_no_second_batch_starts() -> None:
    with peer(answer(WHOAMI)) as port, peer(stay_silent) as blackhole:
        [slow] = add_proxies(1, address_port=blackhole, health_timeout_seconds=4, failure_threshold=1)
        add_proxies(10, address_port=port)
        batch = in_thread(lambda: probe_due("external", NOW))
        wait_until(lambda: Proxy.objects.filter(verdict="healthy").count() == 10)
        slow.refresh_from_db()
        assert slow.verdict == "unknown"
        assert probe_due("external", NOW + timedelta(seconds=30)) == 0
        assert _sessions("state LIKE 'idle in transaction%'") == 0
        batch.join(timeout=30)
    slow.refresh_from_db()
    assert (slow.verdict, slow.last_outcome) == ("unhealthy", "Timeout")
    assert slow.health_changed_at is not None
    assert slow.health_changed_at >= NOW + timedelta(seconds=4)
    state = ProviderState.objects.get()
    assert (state.probe_claim_token, state.probed_until) == (None, NOW)


def test_more_proxies_than_descriptors_are_probed_all_the_same() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 200
    with socket.create_server(("127.0.0.1", 0), backlog=1) as never_accepts:
        port = never_accepts.getsockname()[1]
        add_proxies(many, address_port=port, health_timeout_seconds=1, failure_threshold=1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + many // 2, before[1]))
        try:
            assert probe_due("external", NOW) == many
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
        [asked, other] = add_proxies(2, address_port=port)
        [unreachable] = add_proxies(1, address="", address_port=None)
        assert probe_now([asked.pk, unreachable.pk, 10**9], NOW) == 1
    asked.refresh_from_db()
    other.refresh_from_db()
    assert (asked.verdict, asked.egress_ip) == ("healthy", "203.0.113.9")
    assert other.verdict == "unknown"


def test_a_prompt_probe_is_asked_of_the_entrys_worker_once_the_transaction_commits() -> None:
    [external, other] = add_proxies(2)
    prober = CeleryProber()
    with transaction.atomic():
        prober.probe_soon([external.pk])
        assert messages("provider.external") == []
    assert messages("provider.external") == [{"task": "health.probe", "proxy_ids": [external.pk]}]
    with transaction.atomic():
        prober.probe_soon([other.pk])
        transaction.set_rollback(rollback=True)
    assert messages("provider.external") == []


def test_tasks_answer_to_the_names_of_the_schedule() -> None:
    assert {"health.probe", "health.probe_due"} <= set(current_app.tasks)
    assert probe_task(proxy_ids=[]) == 0


def test_credentials_come_from_the_mirrored_secret() -> None:
    asked: list[bytes] = []

    async def proxy_that_listens(peer: Peer) -> None:
        asked.append(await peer.read_head())
        await peer.send(WHOAMI)

    with peer(proxy_that_listens) as port:
        (proxy,) = add_proxies(address_port=port, credentials_secret_name="login", failure_threshold=1)
        probe_now([proxy.pk], NOW)
        proxy.refresh_from_db()
        assert (proxy.verdict, proxy.last_outcome) == ("unhealthy", "CredentialsMissing")
        assert "credentialsSecretRef: the Secret default/login can't be read" in proxy.health_message
        assert asked == []

        data = {name: base64.b64encode(name.encode()).decode() for name in ("username", "password")}
        MirroredSecret.objects.create(namespace="default", name="login", use=SecretUse.CREDENTIALS, data=data)
        probe_now([proxy.pk], NOW)
        proxy.refresh_from_db()
        assert proxy.verdict == "healthy"
        assert b"Proxy-Authorization: Basic " + base64.b64encode(b"username:password") in asked[0]

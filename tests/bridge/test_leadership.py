"""Two bridges: one leads, and no one else writes; its end, in order or not, is the other's turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from k8s_sync.client import connect
from k8s_sync.leader import LEASE_NAME, LEASE_SECONDS, RETRY_SECONDS, NotLeading
from k8s_sync.term import Term
from proxyfleet.fleet import operations
from proxyfleet.fleet.models import Origin, Proxy
from proxyfleet.local.processes import wait_until
from tests.bridge.bridges import SYSTEM, BridgeProcess, add_account, user
from tests.bridge.operator import Operator
from tests.cluster.audit import Write
from tests.cluster.cluster import Cluster

ACCOUNTS = ("sync-one", "sync-two")
NAMES = "abcdef"
HEARTBEATS = "leases"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def accounts(installed: Cluster) -> tuple[str, ...]:
    """One for each bridge, so that the audit log tells them apart."""
    for name in ACCOUNTS:
        add_account(installed, name)
    return ACCOUNTS


@pytest.fixture
def bridges(operator: Operator, accounts: tuple[str, ...]) -> Iterator[dict[str, BridgeProcess]]:
    """By their accounts; the first leads."""
    started: dict[str, BridgeProcess] = {}
    try:
        for account in accounts:
            started[account] = start(operator, account)
        yield started
    finally:
        for bridge in started.values():
            bridge.kill()
        operator.cluster.kubectl("delete", "lease", LEASE_NAME, "--namespace", SYSTEM)  # nobody has to wait for its end


def start(operator: Operator, account: str) -> BridgeProcess:
    bridge = BridgeProcess(operator.cluster, operator.namespace, account)
    assert wait_until(bridge.is_ready, 60), f"{account} is not ready"
    return bridge


def test_one_leads_and_its_end_is_the_turn_of_the_other(operator: Operator, bridges: dict[str, BridgeProcess]) -> None:
    first, second = bridges
    begin = operator.cluster.audit.mark()

    def writes(account: str) -> list[Write]:
        """What it wrote but for its Lease."""
        found = operator.cluster.audit.writes(begin, user=user(account))
        return [write for write in found if write.resource != HEARTBEATS]

    def news() -> None:
        for proxy in Proxy.objects.all():
            operations.replace(proxy.pk, actor="test", now=timezone.now())

    operator.apply(*NAMES)
    operator.until(lambda: len(writes(first)) > 10)
    assert 'proxyfleet_sync_events_total{kind="Proxy"}' in bridges[first].metrics()
    bridges[first].kill()
    killed_at = timezone.now()
    news()
    operator.until(lambda: writes(second), LEASE_SECONDS + RETRY_SECONDS + 20)
    operator.until(lambda: operator.published() and operator.phases() == {"Ready"})
    assert max(write.at for write in writes(first)) <= killed_at
    waited = min(write.at for write in writes(second)) - killed_at
    assert waited < timedelta(seconds=LEASE_SECONDS + RETRY_SECONDS + 5)

    by_first = len(writes(first))
    bridges[first] = start(operator, first)
    assert len(writes(first)) == by_first, "it is the other's turn"
    assert bridges[second].stop() == 0
    stopped_at = timezone.now()
    operator.kubectl("delete", "px", *NAMES, "--wait=false")
    operator.until(lambda: not operator.proxies())
    assert max(write.at for write in writes(second)) <= stopped_at
    waited = writes(first)[by_first].at - stopped_at
    assert waited < timedelta(seconds=LEASE_SECONDS - 5), "a Lease that was given back is not waited for"


def test_a_leader_that_slept_past_its_lease_leaves_the_rows_alone(
    operator: Operator, caplog: pytest.LogCaptureFixture
) -> None:
    is_awake = threading.Event()
    is_awake.set()

    def check() -> None:
        if not is_awake.is_set():
            raise NotLeading("it slept")

    api = connect(operator.cluster.service_account_kubeconfig(SYSTEM, "proxyfleet-sync"), before_write=check)
    term = Term(
        api,
        identity="sleeper",
        fleet_id="proxyfleet",
        namespace=operator.namespace,
        provider_types={},
        clock=timezone.now,
    )
    term.start()
    try:
        operator.apply("a")
        operator.until(lambda: operator.published() and operator.phases() == {"Ready"})
        is_awake.clear()
        rows = list(Proxy.objects.values_list("uid", "deletion_requested_at"))
        operator.kubectl("delete", "px", "a", "--wait=false")
        operator.until(lambda: "could not be delivered" in caplog.text)
        assert list(Proxy.objects.values_list("uid", "deletion_requested_at")) == rows
        # The next leader has heard of an object that this one has not.
        heard = operations.declare(
            operator.namespace, "b", {"provider": "mem"}, actor="test", now=timezone.now(), origin=Origin.CLUSTER
        )
        operator.until(lambda: "publish proxies: the next try" in caplog.text)
        heard.refresh_from_db()
        assert heard.published_revision < heard.revision
    finally:
        term.stop()

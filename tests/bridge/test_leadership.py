"""Two bridges: one leads, and no one else writes; its end, in order or not, is the other's turn."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from k8s_sync.leader import LEASE_NAME, LEASE_SECONDS, RETRY_SECONDS
from proxyfleet.fleet import operations
from proxyfleet.fleet.models import Proxy
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

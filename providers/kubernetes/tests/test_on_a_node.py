"""The contract again, with pods that really run, and what only a real kubelet can tell of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pytest
import requests

from providers.base import Provider
from providers.instances import Instance, InstanceState, Placement
from providers.kubernetes.tests import test_contract
from providers.kubernetes.tests.conftest import Open
from providers.tests.contract import FOREIGN_FLEET, make_request, settle
from tests.cluster.cluster import Cluster
from tests.cluster.images import SQUID
from tests.cluster.namespaces import new_namespace
from tests.cluster.node import Node

pytestmark = pytest.mark.node
SECONDS = 60
POLL_SECONDS = 0.2


def await_message(provider: Provider, provider_id: str, start: str) -> Instance:
    """The instance once its message starts so."""
    give_up_at = time.monotonic() + SECONDS
    while not (instance := provider.get(provider_id)).message.startswith(start):
        assert time.monotonic() < give_up_at, instance
        time.sleep(POLL_SECONDS)
    return instance


@pytest.fixture(scope="module")
def ready_namespace(cluster: Cluster, node: Node) -> Iterator[str]:
    """One for all tests here: ending it takes a real cluster ten seconds."""
    with new_namespace(cluster) as name:
        cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        yield name


@pytest.fixture
def open_node_provider(cluster: Cluster, ready_namespace: str, open_provider: Open) -> Iterator[Open]:
    """An entry of its own for each test, which thus sees only its own pods."""
    entry = f"test-{uuid4().hex[:8]}"
    yield partial(open_provider, entry=entry, image=SQUID)
    ours = ("-l", f"crawl.example.com/entry={entry}", "-n", ready_namespace)
    cluster.kubectl("delete", "pods", *ours, "--grace-period=1", "--wait=false")


@pytest.fixture
def provider(open_node_provider: Open) -> Provider:
    return open_node_provider()


class TestOnANode(test_contract.TestKubernetesProvider):
    @pytest.fixture
    def kubelet(self, node: Node) -> Node:
        return node

    @pytest.fixture
    def provider(self, open_node_provider: Open) -> Provider:
        return open_node_provider()

    @pytest.fixture
    def another_worker(self, open_node_provider: Open) -> Provider:
        return open_node_provider()

    @pytest.fixture
    def another_fleet_provider(self, open_node_provider: Open) -> Provider:
        return open_node_provider(fleet_id=FOREIGN_FLEET)


def test_a_bad_image_says_why_it_waits(provider: Provider) -> None:
    request = replace(make_request(), placement=Placement(image="registry.invalid/no-such-squid:1"))
    waiting = await_message(provider, provider.create(request).provider_id, "ImagePullBackOff: Back-off pulling image")
    assert waiting.state is InstanceState.PROVISIONING


def test_a_zone_without_nodes_says_so(provider: Provider) -> None:
    made = provider.create(replace(make_request(), placement=Placement(zone="nowhere")))
    assert await_message(provider, made.provider_id, "Unschedulable: ").state is InstanceState.PROVISIONING


def test_a_privileged_port_needs_no_privilege(provider: Provider) -> None:
    running = settle(provider, provider.create(make_request(port=80)).provider_id)
    refused = requests.get("http://127.0.0.1/", proxies={"http": f"http://{running.address}:80"}, timeout=10)
    assert refused.status_code == requests.codes.forbidden


def test_private_targets_and_the_cache_manager_are_denied(provider: Provider) -> None:
    running = settle(provider, provider.create(make_request()).provider_id)
    squid = f"http://{running.address}:3128"
    for target in ("http://10.88.0.1/", "http://169.254.169.254/", "http://[::1]/", "http://localhost/"):
        assert requests.get(target, proxies={"http": squid}, timeout=10).status_code == requests.codes.forbidden, target
    assert requests.get(f"{squid}/squid-internal-mgr/menu", timeout=10).status_code == requests.codes.forbidden
    with pytest.raises(requests.exceptions.ProxyError, match="403"):
        requests.get("https://10.96.0.1/", proxies={"https": squid}, timeout=10)

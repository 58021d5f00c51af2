"""Fixtures of tests that need a Kubernetes.

``cluster`` is a real API server, ``namespace`` an empty one for each test, ``node`` what runs pods.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster import product
from tests.cluster.apiserver import ApiServer
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.namespaces import new_namespace
from tests.cluster.node import Node
from tests.cluster.place import PODS

LOOPBACK = ["127.0.0.0/8", "::1", "localhost"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``node`` may talk to pods."""
    for item in items:
        if item.get_closest_marker("node"):
            item.add_marker(pytest.mark.allow_hosts([*LOOPBACK, PODS]))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """An API server of this pytest process alone, which starts with the first test that asks and dies with pytest.

    No controller manager and no node: pods stay Pending, and a ServiceAccount is there when the test makes it.
    """
    with tempfile.TemporaryDirectory(prefix="proxyfleet-cluster-") as folder, ExitStack() as stack:
        try:
            server = stack.enter_context(ApiServer(Path(folder)))
        except ClusterError as error:
            pytest.fail(str(error), pytrace=False)
        yield Cluster(server)


@pytest.fixture(scope="session")
def node(cluster: Cluster) -> Iterator[Node]:
    """A node of ``cluster`` that runs pods, and the controllers of a whole Kubernetes. For tests marked ``node``."""
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="proxyfleet-image-")))
            node = stack.enter_context(Node(cluster.server.folder, [product.archive(folder)]))
        except ClusterError as error:
            pytest.fail(str(error), pytrace=False)
        cluster.controllers = True
        yield node


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """The name of an empty namespace; with all that is in it, it ends with the test."""
    with new_namespace(cluster) as name:
        yield name

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxyfleet.fleet.tests.world import new_world
from tests.bridge.bridges import install
from tests.bridge.operator import Operator
from tests.cluster.cluster import Cluster


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Cluster:
    """A cluster with what ``kubectl apply -k`` of deploy/ brings."""
    install(cluster)
    return cluster


@pytest.fixture
def operator(installed: Cluster, namespace: str, transactional_db: None) -> Iterator[Operator]:
    with new_world() as world:
        yield Operator(installed, namespace, world)

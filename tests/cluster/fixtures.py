"""Fixtures of tests that need a Kubernetes: ``cluster``, a real API server, and ``namespace``, one for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.apiserver import ApiServer
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.namespaces import new_namespace


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


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """The name of an empty namespace; with all that is in it, it ends with the test."""
    with new_namespace(cluster) as name:
        yield name

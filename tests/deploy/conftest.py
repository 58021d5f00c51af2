from __future__ import annotations

import json

import pytest

from tests.bridge.bridges import SYSTEM, install
from tests.cluster.cluster import Cluster


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Cluster:
    """A cluster with the namespace, the custom resources and the accounts of deploy/."""
    install(cluster)
    # What a controller manager would make.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": SYSTEM}}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(account))
    return cluster

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from providers.blocks import KubernetesBlock
from providers.kubernetes.driver import KubernetesProvider
from providers.kubernetes.tests.kubelet import Kubelet
from providers.tests.contract import FLEET
from tests.cluster.cluster import Cluster

Open = Callable[..., KubernetesProvider]
"""Makes an entry of the driver; keywords are keys of its block, and ``fleet_id`` and ``entry``."""


@pytest.fixture
def ready_namespace(cluster: Cluster, namespace: str) -> str:
    """One that takes pods, if they are as well-behaved as Pod Security can demand."""
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    if not cluster.controllers:
        cluster.kubectl("create", "serviceaccount", "default", "-n", namespace)
    return namespace


@pytest.fixture
def kubelet(cluster: Cluster, ready_namespace: str) -> Iterator[Kubelet]:
    with Kubelet(cluster, ready_namespace) as kubelet:
        yield kubelet


@pytest.fixture
def open_provider(cluster: Cluster, ready_namespace: str) -> Open:
    def open_provider(*, fleet_id: str = FLEET, entry: str = "in-cluster", **block: Any) -> KubernetesProvider:
        block = {"kubeconfigFile": str(cluster.kubeconfig), "namespace": ready_namespace} | block
        return KubernetesProvider(
            entry=entry, block=KubernetesBlock.model_validate(block), fleet_id=fleet_id, state_dir=Path()
        )

    return open_provider


@pytest.fixture
def provider(open_provider: Open) -> KubernetesProvider:
    return open_provider()

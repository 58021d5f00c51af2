"""Joins the parts: hands the fleet what it needs of the layers above it."""

from health.memory import ProbesByBroker
from health.prompt import CeleryProber
from k8s_sync.cluster import KubernetesCluster
from leasing.book import DatabaseLeaseBook
from proxyfleet.fleet.ports import ports


def join_parts() -> None:
    ports.leases = DatabaseLeaseBook()
    ports.prober = CeleryProber()
    ports.probes = ProbesByBroker()
    ports.cluster = KubernetesCluster()

"""The bridge to a Kubernetes cluster: any number of these run, and one leads."""

from __future__ import annotations

import signal
import socket
from argparse import ArgumentParser
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from k8s_sync.bridge import Bridge
from k8s_sync.checks import answering
from k8s_sync.client import connect
from k8s_sync.errors import ClusterError
from k8s_sync.identity import AnotherCluster, confirm_cluster
from k8s_sync.leader import Leader
from k8s_sync.rights import Rights, needed
from k8s_sync.term import Term
from proxyfleet.conf import Settings, settings
from proxyfleet.fleet import readiness
from proxyfleet.fleet.backends import providers
from proxyfleet.local.addresses import Address
from proxyfleet.observability import listener, tracing

POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Command(BaseCommand):
    help = "Mirror the cluster's Proxy objects and show there what becomes of them, until SIGTERM."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--adopt-cluster",
            action="store_true",
            help="the cluster is another one than before: proxies that it does not hold are deleted; then stop",
        )

    def handle(self, *args: Any, adopt_cluster: bool, **options: Any) -> None:
        conf = settings()
        if not conf.cluster_sync:
            raise CommandError("No cluster is configured: set PROXYFLEET_CLUSTER_SYNC=true.")
        try:
            if adopt_cluster:
                confirm_cluster(connect(), adopt=True)
                return
            bridge = _bridge(conf)
            address = Address.parse(conf.sync_addr)
        except (ClusterError, ValueError) as error:
            raise CommandError(str(error)) from error
        listener.start_counting()
        tracing.start("sync")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: bridge.stop())
        with ExitStack() as stack:
            try:
                stack.enter_context(
                    answering(address, alive=lambda: bridge.is_alive, problems=lambda: _problems(bridge))
                )
            except OSError as error:
                raise CommandError(f"PROXYFLEET_SYNC_ADDR: can't listen on {address}: {error.strerror}") from error
            try:
                bridge.run()
            except AnotherCluster as error:
                raise CommandError(str(error)) from error


def _bridge(conf: Settings) -> Bridge:
    """Raises ClusterError without a way to the cluster."""
    access, lease_namespace = connect(), conf.lease_namespace or _own_namespace()
    identity = f"{socket.gethostname()}_{uuid4()}"
    leader = Leader(access, namespace=lease_namespace, identity=identity, fleet_id=conf.fleet_id)
    rights = Rights(access, needed(namespace=conf.proxy_namespace, lease_namespace=lease_namespace))
    api = connect(before_write=leader.check_write)
    configured = providers()

    def new_term() -> Term:
        return Term(
            api,
            identity=leader.identity,
            fleet_id=conf.fleet_id,
            namespace=conf.proxy_namespace,
            provider_types={name: configured.entry(name).type for name in configured.names()},
            clock=timezone.now,
        )

    return Bridge(leader, rights, new_term, clock=timezone.now)


def _own_namespace() -> str:
    try:
        return POD_NAMESPACE.read_text().strip()
    except FileNotFoundError:
        return "default"


def _problems(bridge: Bridge) -> dict[str, str]:
    found = readiness.problems()
    if problem := bridge.problem():
        found["cluster"] = problem
    return found

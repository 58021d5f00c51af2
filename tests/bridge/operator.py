"""What a person does in one namespace of the cluster, and what then comes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.utils import timezone

from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.phases import Verdict
from proxyfleet.fleet.tests.world import World
from proxyfleet.local.processes import wait_until
from tests.cluster.cluster import Cluster


class Operator:
    """``world`` is the fleet behind: its backend is in memory, the rest is real."""

    def __init__(self, cluster: Cluster, namespace: str, world: World) -> None:
        self.cluster, self.namespace, self.world = cluster, namespace, world

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, "--namespace", self.namespace, stdin=stdin)

    def apply(self, *names: str, **spec: Any) -> None:
        items = [manifest(name, **spec) for name in names]
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def proxy(self, name: str) -> dict[str, Any]:
        return self.cluster.get("px", name, "--namespace", self.namespace)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.proxy(name).get("status", {})
        return found

    def exists(self, name: str) -> bool:
        return bool(self.kubectl("get", "px", name, "--ignore-not-found"))

    def told(self) -> str:
        """The Events, one a line."""
        line = "{range .items[*]}{.reason} {.note}{'\\n'}{end}"
        return self.kubectl("get", "events.events.k8s.io", "-o", f"jsonpath={line}")

    def row(self, name: str) -> Proxy:
        return Proxy.objects.get(namespace=self.namespace, name=name)

    def work(self) -> None:
        """What is due is reconciled, and what has an address is healthy."""
        self.world.now = timezone.now()
        self.world.run()
        for proxy in Proxy.objects.exclude(address="").exclude(verdict=Verdict.HEALTHY):
            self.world.judge(proxy, Verdict.HEALTHY)

    def until(self, condition: Callable[[], object], seconds: float = 30) -> None:
        """Work until it is true."""

        def holds() -> bool:
            self.work()
            return bool(condition())

        assert wait_until(holds, seconds)


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    spec.setdefault("provider", "mem")
    return {"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": name}, "spec": spec}

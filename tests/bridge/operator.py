"""What a person does in one namespace of the cluster, and what then comes of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from django.db.models import F
from django.utils import timezone

from k8s_sync.kinds import PROXY
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.phases import Verdict
from proxyfleet.fleet.tests.world import World
from tests.cluster.audit import Write
from tests.cluster.cluster import Cluster


class Operator:
    """``world`` is the fleet behind: its backend is in memory, the rest is real."""

    def __init__(self, cluster: Cluster, namespace: str, world: World) -> None:
        self.cluster, self.namespace, self.world = cluster, namespace, world
        self._session = cluster.session()
        self._proxies = f"{cluster.url}{PROXY.path(namespace=namespace)}"

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, "--namespace", self.namespace, stdin=stdin)

    def apply(self, *names: str, **spec: Any) -> None:
        items = [manifest(name, **spec) for name in names]
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def proxies(self) -> dict[str, dict[str, Any]]:
        """All objects, by name."""
        answer = self._session.get(self._proxies, timeout=30)
        answer.raise_for_status()
        return {obj["metadata"]["name"]: obj for obj in answer.json()["items"]}

    def proxy(self, name: str) -> dict[str, Any]:
        return self.proxies()[name]

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.proxy(name).get("status", {})
        return found

    def phases(self) -> set[str]:
        """Those that the objects show."""
        return {obj.get("status", {}).get("phase", "") for obj in self.proxies().values()}

    def reason(self, name: str) -> str:
        """Why it is Ready, or is not."""
        conditions = {condition["type"]: condition for condition in self.status(name).get("conditions", ())}
        return str(conditions.get("Ready", {}).get("reason", ""))

    def writes(self, since: int, **matching: str) -> list[Write]:
        """What was written in the namespace since the mark."""
        return self.cluster.audit.writes(since, namespace=self.namespace, **matching)

    def exists(self, name: str) -> bool:
        return name in self.proxies()

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
        for proxy in Proxy.objects.exclude(address="").exclude(
            verdict=Verdict.HEALTHY, probed_serial=F("instance_serial")
        ):
            self.world.judge(proxy, Verdict.HEALTHY)

    def until(self, condition: Callable[[], object], seconds: float = 30) -> None:
        """Work until it is true."""
        deadline = time.monotonic() + seconds
        while True:
            self.work()
            if condition():
                return
            assert time.monotonic() < deadline, f"not within {seconds} s"
            time.sleep(0.1)

    def published(self) -> bool:
        """Whether there are rows, and the cluster shows all that is new about them."""
        return Proxy.objects.exists() and not Proxy.objects.filter(revision__gt=F("published_revision")).exists()


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    spec.setdefault("provider", "mem")
    return {"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": name}, "spec": spec}

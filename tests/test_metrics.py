"""Numbers that are true whatever the number of processes: two of the web, a worker of two, one of which is killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import psutil
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from proxyfleet.local.processes import wait_until
from tests.product_processes import Product

pytestmark = pytest.mark.timeout(600)
SECONDS = 240
PROXIES, SLOTS = 3, 4
CREATED = """
from proxyfleet.fleet.models import ProxyEvent
print(ProxyEvent.objects.filter(kind="{kind}").count())
"""

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Target(ThreadingHTTPServer):
    """What probes fetch, and what has been fetched."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.fetched: list[str] = []


class Page(BaseHTTPRequestHandler):
    server: Target

    def do_GET(self) -> None:
        self.server.fetched.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """What was fetched is remembered."""


@pytest.fixture
def target() -> Iterator[Target]:
    with Target() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def product(tmp_path: Path, target: Target) -> Iterator[Product]:
    url = f"http://127.0.0.1:{target.server_port}/"
    product = Product(tmp_path, PROXYFLEET_HEALTHCHECK_URL=url, PROXYFLEET_PROVIDER_CHECK_INTERVAL="1")
    try:
        product.start("web", "worker", "beat")
        yield product
    finally:
        product.close()


def scrape(product: Product, name: str) -> Samples:
    text = requests.get(f"{product.metrics[name].local_url}/metrics", timeout=60).text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(product: Product, metric: str, **labels: str) -> float:
    """The sum over all targets, of the samples that carry these labels."""
    return sum(
        value
        for name in product.running
        for (sample, carried), value in scrape(product, name).items()
        if sample == metric and labels.items() <= set(carried)
    )


def until(condition: object, what: str) -> None:
    assert callable(condition)
    assert wait_until(condition, SECONDS), what


def events(product: Product, kind: str) -> int:
    return int(product.manage("shell", "--no-imports", "--command", CREATED.format(kind=kind)))


def children(product: Product, name: str) -> set[int]:
    return {child.pid for child in psutil.Process(product.running[name].pid).children()}


def declare(product: Product, name: str) -> None:
    spec = {
        "provider": "here",
        "maxLeases": SLOTS,
        "healthCheck": {"intervalSeconds": 3, "timeoutSeconds": 3, "failureThreshold": 99},
    }
    assert product.call("PUT", f"proxies/default/{name}", spec).ok


def all_ready(product: Product, number: int) -> bool:
    phases = [proxy["phase"] for proxy in product.proxies()]
    return phases == ["Ready"] * number


def test_the_numbers_are_what_was_done(product: Product, target: Target) -> None:
    for number in range(PROXIES):
        declare(product, f"p{number}")
    until(lambda: all_ready(product, PROXIES), product.log("worker"))

    # Sixty requests on connections of their own, which two processes share.
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: product.call("POST", "leases", {"target": "a.example"}), range(60)))
        leases = [answer.json()["leaseID"] for answer in answers if answer.status_code == 201]
        results = ["ok", "blocked", "timeout"] * 4
        said = list(
            pool.map(
                lambda pair: product.call("POST", f"leases/{pair[0]}/report", {"result": pair[1]}),
                zip(leases, results, strict=True),
            )
        )
    assert all(answer.ok for answer in said)
    assert len(children(product, "web")) >= 2
    assert len(list((product.folder / "metrics-web").glob("counter_*.db"))) >= 2, "both were asked"
    assert Counter(answer.status_code for answer in answers) == {201: PROXIES * SLOTS, 409: 60 - PROXIES * SLOTS}
    assert total(product, "proxyfleet_lease_requests_total", outcome="granted") == PROXIES * SLOTS
    assert total(product, "proxyfleet_lease_requests_total", outcome="no_proxy_available") == 60 - PROXIES * SLOTS
    for result in set(results):
        assert total(product, "proxyfleet_reports_total", result=result) == results.count(result)

    # What is read is the same whoever answers.
    for _ in range(20):
        state = scrape(product, "web")
        assert state["proxyfleet_leases_active", frozenset()] == PROXIES * SLOTS
        assert 0 < state["proxyfleet_cooldowns_active", frozenset()] <= PROXIES
        ready = frozenset({"phase": "Ready", "provider": "here", "mode": "Managed"}.items())
        assert state["proxyfleet_proxies", ready] == PROXIES
    assert total(product, "proxyfleet_leases_active") == PROXIES * SLOTS, "no other target tells it again"

    # A child is killed, another takes its place, and nothing that was counted is forgotten.
    before = children(product, "worker")
    steps = total(product, "proxyfleet_reconcile_total")
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(children(product, "worker") - {victim}) == len(before), product.log("worker"))
    assert total(product, "proxyfleet_reconcile_total") >= steps
    for number in range(PROXIES, 2 * PROXIES):
        declare(product, f"p{number}")
    until(lambda: all_ready(product, 2 * PROXIES), product.log("worker"))
    product.call("DELETE", "proxies/default/p5")
    until(lambda: all_ready(product, 2 * PROXIES - 1), product.log("worker"))

    product.stop("beat")
    until(lambda: total(product, "proxyfleet_queue_depth") == 0, "the queues do not drain")
    until(lambda: is_steady(product), "probes go on without beat")
    assert len(list((product.folder / "metrics-worker").glob("*.slot"))) <= 4, "children that follow need no more"
    created = events(product, "InstanceCreated")
    assert created >= 2 * PROXIES
    assert total(product, "proxyfleet_reconcile_total", action="CreateInstance", result="ok") == created
    deleted = events(product, "InstanceDeleted")
    assert total(product, "proxyfleet_reconcile_total", action="DeleteInstance", result="ok") == deleted
    assert total(product, "proxyfleet_provider_call_duration_seconds_count", call="create", result="ok") == created
    counted = total(product, "proxyfleet_healthcheck_total", provider="here", outcome="Ok")
    lost = 2 * PROXIES  # at most: the probes that the killed child was at
    assert len(target.fetched) - lost <= counted <= len(target.fetched)
    probes = total(product, "proxyfleet_healthcheck_total")
    assert total(product, "proxyfleet_healthcheck_duration_seconds_count") == probes
    assert total(product, "proxyfleet_reconcile_duration_seconds_count") == total(product, "proxyfleet_reconcile_total")
    assert total(product, "proxyfleet_provider_target_up", provider="here") == 1
    assert total(product, "proxyfleet_provider_check_duration_seconds_count", provider="here") > 0
    assert total(product, "proxyfleet_healthcheck_age_seconds", provider="here") > 0, "nothing is probed without beat"


def is_steady(product: Product) -> bool:
    before = total(product, "proxyfleet_healthcheck_duration_seconds_count")
    return not wait_until(lambda: total(product, "proxyfleet_healthcheck_duration_seconds_count") != before, seconds=3)


def test_no_label_grows_with_the_fleet(product: Product) -> None:
    declare(product, "by-its-name")
    until(lambda: all_ready(product, 1), product.log("worker"))
    assert product.call("POST", "leases", {"target": "for-a.example"}).ok
    for name in product.running:
        text = requests.get(f"{product.metrics[name].local_url}/metrics", timeout=60).text
        assert "by-its-name" not in text
        assert "for-a.example" not in text

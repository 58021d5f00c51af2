"""Traces as a collector gets them from real processes: from a call of the API, or a tick of beat, to the backend."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasing.tests.processes import environment
from proxyfleet.local.processes import wait_until
from tests.otlp_receiver import Receiver, Span, receiving
from tests.product_processes import ROOT, TOKEN, Product

SECONDS = 240
pytestmark = pytest.mark.timeout(600)

UNTRACED = """
import sys, threading
import proxyfleet.wsgi
from opentelemetry import trace
from proxyfleet.observability import tracing
assert proxyfleet.wsgi.application is proxyfleet.wsgi._serve
assert not tracing.start("worker")
assert [thread.name for thread in threading.enumerate()] == ["MainThread"], threading.enumerate()
assert not [name for name in sys.modules if name.startswith("opentelemetry.exporter")]
assert "proxyfleet.observability.sdk" not in sys.modules
assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider), "nobody makes spans"
print("nothing")
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def product(tmp_path: Path, receiver: Receiver) -> Iterator[Product]:
    product = Product(
        tmp_path,
        PROXYFLEET_HEALTHCHECK_URL=f"{receiver.url}/",
        PROXYFLEET_GC_INTERVAL="1",
        PROXYFLEET_PROVIDER_CHECK_INTERVAL="1",
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        OTEL_BSP_SCHEDULE_DELAY="100",
    )
    try:
        product.start("web", "worker")
        yield product
    finally:
        product.close()


def names(spans: list[Span]) -> list[str]:
    return [span.name for span in spans]


def lineage(receiver: Receiver, name: str, root: str) -> list[Span]:
    """Of the first span of this name that descends from a ``root``, which may take a while to arrive."""
    found: list[list[Span]] = []

    def is_there() -> bool:
        found[:] = [line for span in receiver.named(name) if (line := receiver.lineage(span))[-1].name == root]
        return bool(found)

    assert wait_until(is_there, SECONDS), names(receiver.spans)
    return found[0]


def test_a_trace_goes_from_its_cause_to_the_backend(product: Product, receiver: Receiver) -> None:
    cloud_init = "#cloud-config\npassword: hunter2-is-secret\n"
    # Without beat, nothing but this call can be the cause.
    assert product.call("PUT", "proxies/default/p", {"provider": "here", "cloudInit": {"inline": cloud_init}}).ok
    request = "PUT /v1/proxies/<str:namespace>/<str:name>"
    line = lineage(receiver, "provider create", request)
    create, reconcile, _, send, asked = line
    assert names(line) == ["provider create", "reconcile", "run fleet.reconcile", "send fleet.reconcile", request]
    assert [span.service.removeprefix("proxyfleet-") for span in line] == ["worker", "worker", "worker", "web", "web"]
    assert len({span.trace_id for span in line}) == 1
    assert asked.parent_id == ""
    assert reconcile.attributes == {
        "proxy": "default/p",
        "provider": "here",
        "action": "CreateInstance",
        "result": "ok",
    }
    assert create.attributes == {"provider": "here"}
    assert send.attributes == {"queue": "provider.here"}
    done = [json.loads(line) for line in product.log("worker").splitlines() if "CreateInstance is done" in line]
    assert [(line["traceID"], line["spanID"]) for line in done] == [(reconcile.trace_id, reconcile.span_id)]

    product.call("POST", "leases", {"selector": {"geo": "nowhere"}})
    lineage(receiver, "POST /v1/leases", "POST /v1/leases")
    product.start("beat")
    for name, root in (
        ("run fleet.reconcile", "send fleet.reconcile"),
        ("provider list", "send fleet.collect_orphans"),
        ("provider check", "send health.check_provider"),
    ):
        line = lineage(receiver, name, root)
        assert (line[-1].service, line[0].service) == ("proxyfleet-beat", "proxyfleet-worker")
    assert "collect orphans" in names(lineage(receiver, "provider list", "send fleet.collect_orphans"))
    assert "check provider" in names(lineage(receiver, "provider check", "send health.check_provider"))

    everything = b"\n".join(receiver.bodies)
    for unwanted in (b"probe", b"expire_leases", b"relist", b"GET /metrics", TOKEN.encode(), b"hunter2", b"Bearer"):
        assert unwanted not in everything


@pytest.mark.django_db(transaction=True)
def test_without_an_endpoint_there_is_no_trace_of_it() -> None:
    untraced = {name: value for name, value in environment().items() if not name.startswith("OTEL")}
    ran = subprocess.run(
        [sys.executable, "-c", UNTRACED], cwd=ROOT, env=untraced, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.returncode) == ("nothing\n", 0), ran.stderr

"""Options and fixtures of the whole suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proxyfleet import conf

pytest_plugins = ["tests.cluster.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedules", type=int, default=1000, help="random schedules that the lifecycle's property test tries"
    )
    parser.addoption("--proxies", type=int, default=50, help="proxies that are declared in the cluster at once")
    parser.addoption("--quiet-seconds", type=float, default=20, help="how long the cluster is then watched for writes")
    parser.addoption("--examples", type=int, default=5, help="requests that are made up for each call of the API")
    parser.addoption("--screenshots", metavar="FOLDER", help="where the browser tests leave a picture of each page")
    parser.addoption("--storm", type=float, default=4, help="seconds that each storm on the API processes lasts")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first: of processes that share the tests, none then ends minutes after the others."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans that end while the test runs."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    for module in ("proxyfleet.observability.tracing", "providers.tracing"):
        monkeypatch.setattr(f"{module}._tracer", provider.get_tracer("tests"))
    yield kept
    provider.shutdown()


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settings with the bridge on."""
    monkeypatch.setenv("PROXYFLEET_CLUSTER_SYNC", "true")
    conf.settings.cache_clear()
    yield
    monkeypatch.undo()
    conf.settings.cache_clear()

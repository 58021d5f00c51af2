"""What a probe is counted as, and when it is traced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from health.engine import _count
from health.results import Measured, Outcome, ProbeResult, Stage
from proxyfleet import conf
from proxyfleet.observability import metrics

RESULTS = [
    ProbeResult(Measured(1, 1), Outcome.OK, Stage.RESPONSE, {Stage.CONNECT: 0.5, Stage.RESPONSE: 1.0}, ""),
    ProbeResult(Measured(2, 1), Outcome.TIMEOUT, Stage.TLS, {Stage.CONNECT: 9.0}, "silent"),
    ProbeResult(Measured(2, 1), Outcome.CREDENTIALS_MISSING, Stage.CONNECT, {}, "no Secret"),
]
ENTRIES = {1: "of-these-tests", 2: "external"}


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PROXYFLEET_TRACE_HEALTH_PROBES", "true")
    conf.settings.cache_clear()
    yield
    monkeypatch.undo()
    conf.settings.cache_clear()


def test_probes_are_counted_by_provider_and_outcome(spans: InMemorySpanExporter) -> None:
    counters = [
        metrics.healthchecks.labels(*labels)
        for labels in (("of-these-tests", "Ok"), ("external", "Timeout"), ("external", "CredentialsMissing"))
    ]
    total = metrics.healthcheck_duration._sum
    before = [counter._value.get() for counter in counters], total.get()
    _count(RESULTS, ENTRIES)
    after = [counter._value.get() for counter in counters], total.get()
    assert [new - old for new, old in zip(after[0], before[0], strict=True)] == [1, 1, 1]
    assert after[1] - before[1] == pytest.approx(10.5), "what was not tried took no time"
    assert spans.get_finished_spans() == ()


@pytest.mark.usefixtures("traced")
def test_probes_are_spans_where_that_is_set(spans: InMemorySpanExporter) -> None:
    _count(RESULTS, ENTRIES)
    first, second = spans.get_finished_spans()
    assert dict(first.attributes or {}) == {"proxy": "1", "outcome": "Ok", "stage": "response"}
    assert first.end_time is not None
    assert first.start_time is not None
    assert (first.end_time - first.start_time) / 1e9 == pytest.approx(1.5)
    assert (second.attributes or {})["outcome"] == "Timeout"

"""Which calls to the API server are spans."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from k8s_sync.errors import ClusterError
from k8s_sync.kinds import LEASE, PROXY
from k8s_sync.tests.scripted import Script, serving
from proxyfleet.observability import tracing


def test_reads_and_the_lease_are_spans_only_as_a_part_of_something(spans: InMemorySpanExporter) -> None:
    with serving(Script(lists=[(1, []), (2, [])], watches=[])) as api:
        api.list(PROXY)
        with pytest.raises(ClusterError):
            api.create(LEASE, {"metadata": {"namespace": "default", "name": "sync"}})
        assert spans.get_finished_spans() == ()
        with tracing.span("of something"):
            api.list(PROXY)
    read, whole = spans.get_finished_spans()
    assert read.parent == whole.context
    assert (read.name, dict(read.attributes or {})) == ("kubernetes GET", {"path": PROXY.path()})


def test_a_write_is_a_span_that_says_how_it_failed(spans: InMemorySpanExporter) -> None:
    with serving(Script(lists=[], watches=[])) as api, pytest.raises(ClusterError):
        api.create(PROXY, {"metadata": {"namespace": "default", "name": "p"}})
    (write,) = spans.get_finished_spans()
    assert (write.name, write.parent) == ("kubernetes POST", None)
    assert (write.attributes or {})["error.type"] == "Unreachable"

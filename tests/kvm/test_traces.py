"""Each call of libvirt is a span in the trace of whoever asked for it, across the threads that ask hosts at once."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proxyfleet.observability import tracing
from tests.kvm import entries
from tests.kvm.host import Host
from tests.kvm.sources import ImageServer


@pytest.mark.parametrize("kind", ["kvm", "kvm2"])
def test_each_call_is_a_span(kind: str, host: Host, images: ImageServer, spans: InMemorySpanExporter) -> None:
    provider = entries.provider(kind, entries.block(host, images))
    with tracing.span("outer"):
        assert not provider.list().unreachable
        assert all(target.ready for target in provider.check())
    *calls, outer = spans.get_finished_spans()
    assert all(call.parent == outer.context for call in calls)
    names = [call.name for call in calls]
    assert names.count("libvirt open") == 2, names
    assert "libvirt virConnect.listAllDomains" in names
    assert {(call.attributes or {})["host"] for call in calls} == {"host1"}

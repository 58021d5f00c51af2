from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from proxyfleet import conf
from proxyfleet.local.addresses import Address, free_port
from proxyfleet.observability import exposition, listener, metrics

TOKEN = "hush-hush-of-prometheus"


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PROXYFLEET_METRICS_TOKEN", TOKEN)
    conf.settings.cache_clear()
    yield
    monkeypatch.undo()
    conf.settings.cache_clear()


def test_what_never_happened_is_named() -> None:
    page = exposition.page(authorization="", accept="").body.decode()
    named = {family.name for family in text_string_to_metric_families(page)}
    assert named >= {described.name for metric in metrics.COUNTED for described in metric.describe()}


def test_openmetrics_is_spoken_to_whoever_asks_for_it() -> None:
    page = exposition.page(authorization="", accept="application/openmetrics-text; version=1.0.0")
    assert page.content_type.startswith("application/openmetrics-text")
    assert list(open_families(page.body.decode()))


@pytest.mark.usefixtures("private")
def test_a_token_is_asked_for_where_one_is_set() -> None:
    for wrong in ("", "Bearer", "Bearer other", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \N{SNOWMAN}"):
        page = exposition.page(authorization=wrong, accept="")
        assert page.status == HTTPStatus.UNAUTHORIZED
        assert b"proxyfleet_" not in page.body
    assert exposition.page(authorization=f"Bearer {TOKEN}", accept="").status == HTTPStatus.OK


@pytest.mark.usefixtures("private")
def test_workers_answer_by_the_same_rules() -> None:
    address = listener.listen(Address("127.0.0.1", free_port()))
    asked = urllib.request.Request(f"{address.local_url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert b"proxyfleet_reconcile_total" in answer.read()
    for path, status in (("/metrics", 401), ("/", 404), ("/metricsx", 404)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{address.local_url}{path}", timeout=30)
        assert caught.value.code == status
        caught.value.close()

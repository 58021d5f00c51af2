"""What the product's processes write about a whole life of a proxy, at the loudest level."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxyfleet.local.processes import wait_until
from tests.product_processes import TOKEN, Product

SECONDS = 240
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    # Nothing answers there: the proxy never gets Ready, and says why.
    product = Product(tmp_path, PROXYFLEET_LOG_LEVEL="DEBUG", PROXYFLEET_HEALTHCHECK_URL="http://127.0.0.1:9/")
    try:
        product.start("web", "worker", "beat")
        yield product
    finally:
        product.close()


def test_every_line_is_an_object_and_none_holds_a_secret(product: Product) -> None:
    spec = {"provider": "here", "cloudInit": {"inline": "#cloud-config\npassword: hunter2-is-secret\n"}}
    assert product.call("PUT", "proxies/default/p", spec).ok
    assert wait_until(lambda: "CreateInstance is done" in product.log("worker"), SECONDS), product.log("worker")
    assert product.call("GET", "leases/of-nobody").status_code == 404
    product.call("DELETE", "proxies/default/p")
    assert wait_until(lambda: not product.proxies(), SECONDS)
    logs = {name: product.log(name) for name in product.running}
    for name, log in logs.items():
        for line in map(json.loads, log.splitlines()):
            assert line.keys() >= {"timestamp", "level", "logger", "message"}, name
        for secret in (TOKEN, "hunter2", "of-the-tests-of-the-products-processes"):
            assert secret not in log
    steps = [json.loads(line) for line in logs["worker"].splitlines()]
    assert "debug" in {line["level"] for line in steps}
    told = [line["message"] for line in steps if line["logger"] == "proxyfleet.fleet.reconciler"]
    assert [message for message in told if "is done" in message] == [
        "default/p: CreateInstance is done",
        "default/p: DeleteInstance is done",
    ]

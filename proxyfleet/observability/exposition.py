"""What ``/metrics`` says, and to whom."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from proxyfleet.conf import settings
from proxyfleet.observability import metrics, slots

PATH = "/metrics"


class Page(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes


def page(*, authorization: str, accept: str, read: Collector | None = None) -> Page:
    """The answer to a request with these headers: what was counted, and what ``read`` finds.

    Raises OSError when the metrics folder can't be used.
    """
    token = settings().metrics_token
    if token is not None and not _is_bearer(authorization, token.get_secret_value()):
        return Page(HTTPStatus.UNAUTHORIZED, "text/plain", b"Use the token of PROXYFLEET_METRICS_TOKEN.\n")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counted())
    if read is not None:
        registry.register(read)
    encode, content_type = choose_encoder(accept)
    return Page(HTTPStatus.OK, content_type, encode(registry))


class _Counted(Collector):
    """The sum over all slots of the folder. What never happened is named, without a number."""

    def collect(self) -> Iterable[Metric]:
        slots.join()
        found = {metric.name: metric for metric in MultiProcessCollector(None, path=str(slots.folder())).collect()}
        for metric in metrics.COUNTED:
            for defined in metric.describe():
                yield found.get(defined.name, defined)


def _is_bearer(authorization: str, token: str) -> bool:
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())

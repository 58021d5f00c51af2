"""``GET /metrics`` of the web process: what it counted, and the state of the whole fleet."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from django.db import Error as DatabaseTrouble
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET
from prometheus_client import Metric
from prometheus_client.registry import Collector

from health import gauges as health
from leasing import gauges as leasing
from proxyfleet.fleet import gauges as fleet
from proxyfleet.observability import exposition

logger = logging.getLogger(__name__)


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    page = exposition.page(
        authorization=request.headers.get("Authorization", ""),
        accept=request.headers.get("Accept", ""),
        read=_State(),
    )
    return HttpResponse(page.body, status=page.status, content_type=page.content_type)


class _State(Collector):
    """Without a database there is none of it; what was counted is told anyway."""

    def collect(self) -> Iterable[Metric]:
        try:
            return list(_read())
        except DatabaseTrouble as error:
            logger.warning("The state of the fleet can't be read for /metrics: %s", error)
            return []


def _read() -> Iterator[Metric]:
    now = timezone.now()
    for part in (fleet, leasing, health):
        yield from part.read(now)

"""``GET /metrics`` of the web process: what it counted, and the state of the whole fleet."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

from django.db import Error as DatabaseTrouble
from django.db import close_old_connections
from django.utils import timezone
from prometheus_client import Metric
from prometheus_client.registry import Collector

from health import gauges as health
from leasing import gauges as leasing
from proxyfleet.fleet import gauges as fleet
from proxyfleet.observability import exposition

logger = logging.getLogger(__name__)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The page as a WSGI application."""
    try:
        page = exposition.page(
            authorization=environ.get("HTTP_AUTHORIZATION", ""), accept=environ.get("HTTP_ACCEPT", ""), read=_State()
        )
    finally:
        close_old_connections()
    headers = [("Content-Type", page.content_type), ("Content-Length", str(len(page.body)))]
    start_response(f"{page.status.value} {page.status.phrase}", headers)
    return (page.body,)


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

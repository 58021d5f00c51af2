"""Clients that declare and delete the same proxy at once, while the reconciler lets it go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from django.db import connection

from leasing.tests.api import Api, openapi_document
from proxyfleet.fleet.models import Proxy

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/v1/proxies/default/contested"
ROUNDS = 60


def test_each_call_gets_an_answer_that_is_true_of_some_moment() -> None:
    openapi_document()
    ended = Event()
    answers: Counter[tuple[str, int]] = Counter()

    def call(method: str) -> Callable[[], None]:
        def work() -> None:
            api = Api()
            for number in range(ROUNDS):
                spec = {"mode": "External", "endpoint": {"host": "192.0.2.1"}, "maxLeases": 1 + number % 3}
                answers[method, api.call(method, PATH, spec if method == "PUT" else None).status] += 1
            connection.close()

        return work

    def let_go() -> None:
        while not ended.is_set():
            Proxy.objects.exclude(deletion_requested_at=None).delete()
        connection.close()

    with ThreadPoolExecutor(8) as threads:
        letting_go = threads.submit(let_go)
        callers = [threads.submit(call(method)) for method in ("PUT", "PUT", "PUT", "DELETE", "DELETE", "GET")]
        try:
            for caller in callers:
                caller.result()
        finally:
            ended.set()
        letting_go.result()
    seen = {method: {status for verb, status in answers if verb == method} for method in ("PUT", "DELETE", "GET")}
    assert seen["PUT"] <= {200, 201}
    assert seen["DELETE"] <= {202, 404}
    assert seen["GET"] <= {200, 404}

"""One of the processes of the concurrency tests: threads that lease and release on the database of the environment.

Each line of standard input is an order, as JSON; each line of standard output is what was seen while it was carried
out. Work that has no end of its own stops at the next line.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import django

django.setup()

from django.db import connection, transaction  # noqa: E402  models can be imported only now
from django.utils import timezone  # noqa: E402

from leasing import endings, operations  # noqa: E402
from leasing.allocation import Wish, grant  # noqa: E402
from leasing.book import DatabaseLeaseBook  # noqa: E402
from leasing.ids import uuid7  # noqa: E402
from leasing.models import EndCause, Lease, ProxyLoad  # noqa: E402
from leasing.selectors import Selector  # noqa: E402
from leasing.tests.orders import Orders  # noqa: E402


class Process:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._stop = threading.Event()
        self.seen: Counter[str] = Counter()
        self.errors: list[str] = []

    def run(self) -> None:
        work = {"lease": self._lease, "sweep": self._sweep, "recycle": self._recycle}[self._orders.role]
        threads = [threading.Thread(target=self._guarded, args=[work]) for _ in range(self._orders.clients)]
        for thread in threads:
            thread.start()
        if self._orders.role != "lease":
            sys.stdin.readline()
            self._stop.set()
        for thread in threads:
            thread.join()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  whatever it is, the test must see it
            self.errors.append(repr(error))
        finally:
            connection.close()

    def _lease(self) -> None:
        wish = Wish(selector=Selector(), target="example.com")
        for _ in range(self._orders.rounds):
            now = timezone.now()
            count = random.randint(1, self._orders.largest_batch)
            expires_at = now + timedelta(milliseconds=self._orders.ttl_milliseconds)
            leases = grant(wish, [uuid7(now) for _ in range(count)], now=now, expires_at=expires_at)
            self.seen["granted" if leases else "none"] += len(leases) or 1
            if len({lease.proxy.id for lease in leases}) != len(leases):
                self.seen["not distinct"] += 1
            for lease in leases:
                endings.release(lease.id, cause=EndCause.RELEASED, now=timezone.now())

    def _sweep(self) -> None:
        while not self._stop.is_set():
            self.seen["expired"] += operations.expire(timezone.now())

    def _recycle(self) -> None:
        """End proxies again and again, as the reconciler does when an instance is lost."""
        book = DatabaseLeaseBook()
        loads = list(ProxyLoad.objects.all())
        while not self._stop.is_set():
            load = random.choice(loads)
            with transaction.atomic():
                book.publish(load.proxy_id, leasable=False, max_leases=load.max_leases, generation=1)
                self.seen["ended"] += book.end_all(load.proxy_id, cause=EndCause.INSTANCE_LOST, now=timezone.now())
                self.seen["survived"] += Lease.objects.filter(proxy_id=load.proxy_id).count()
            book.publish(load.proxy_id, leasable=True, max_leases=load.max_leases, generation=1)


if __name__ == "__main__":
    for line in iter(sys.stdin.readline, ""):
        process = Process(Orders(**json.loads(line)))
        process.run()
        sys.stdout.write(json.dumps({"seen": process.seen, "errors": process.errors}) + "\n")
        sys.stdout.flush()

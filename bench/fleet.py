"""Fills the database of the environment: ``python -m bench.fleet PROXIES``."""

from __future__ import annotations

import sys

import django

django.setup()

from django.db import transaction  # noqa: E402  needs the settings

from leasing.book import DatabaseLeaseBook  # noqa: E402  models can be imported only now
from proxyfleet.fleet.models import Proxy  # noqa: E402
from proxyfleet.fleet.phases import Phase, Verdict  # noqa: E402

MAX_LEASES = 20
REGIONS, TIERS = 20, 3


def fill(count: int) -> None:
    """Ready proxies, in `REGIONS` values of ``geo`` and `TIERS` of ``tier``."""
    book = DatabaseLeaseBook()
    made = Proxy.objects.bulk_create(
        Proxy(
            name=f"p{number}",
            provider="east",
            phase=Phase.READY,
            address=f"192.0.2.{number % 250}",
            verdict=Verdict.HEALTHY,
            max_leases=MAX_LEASES,
            attributes={"geo": f"r{number % REGIONS}", "tier": f"t{number % TIERS}"},
            next_reconcile_at=None,
        )
        for number in range(count)
    )
    for proxy in made:
        book.publish(proxy.pk, leasable=True, max_leases=MAX_LEASES, generation=1)


if __name__ == "__main__":
    with transaction.atomic():
        fill(int(sys.argv[1]))

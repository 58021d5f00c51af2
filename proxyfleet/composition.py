"""Joins the parts: hands the fleet what it needs of the layers above it."""

from health.engine import CeleryProber
from leasing.book import DatabaseLeaseBook
from proxyfleet.fleet.ports import ports


def join_parts() -> None:
    ports.leases = DatabaseLeaseBook()
    ports.prober = CeleryProber()

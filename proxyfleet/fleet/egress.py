"""Proxies whose way out an operator should know of: two that targets see as one, and one that gives its user away."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Count, F, QuerySet

from proxyfleet.fleet.models import Proxy


def sharing_egress(*, among: Collection[str] | None = None) -> QuerySet[Proxy]:
    """Proxies that targets see under the address of another one, too; ``among`` limits it to some addresses.

    The address is that of the current instance.
    """
    known = _current().exclude(egress_ip=None) if among is None else _current().filter(egress_ip__in=among)
    shared = known.values("egress_ip").annotate(proxies=Count("pk")).filter(proxies__gt=1).values("egress_ip")
    return known.filter(egress_ip__in=shared)


def leaking_address() -> QuerySet[Proxy]:
    """Proxies that told the target of their last plain-http probe, in a header, whom they work for."""
    return _current().exclude(leaking_headers="")


def _current() -> QuerySet[Proxy]:
    return Proxy.objects.filter(probed_serial=F("instance_serial"))

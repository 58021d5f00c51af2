"""Notices what nobody told us: instances that vanished or stopped by themselves. No write at rest."""

from __future__ import annotations

from datetime import datetime

from providers.base import Provider
from providers.instances import InstanceState
from proxyfleet.fleet import hints
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.phases import Phase


def relist(entry: str, provider: Provider, now: datetime) -> list[int]:
    """Wake the proxies of ``entry`` whose running instance is not listed as running any more; returns their ids.

    Only a hint: the reconciler asks the provider for each before it believes it. A part of the backend that did not
    answer says nothing of the instances there, so a partial listing wakes only for what it does show. A driver may
    leave addresses out of its listing.
    """
    settled = list(
        Proxy.objects.filter(lane=entry, phase__in=(Phase.READY, Phase.UNHEALTHY), claim_token=None)
        .exclude(provider_id="")
        .values_list("pk", "provider_id", "address")
    )
    listed = provider.list()
    seen = {instance.provider_id: instance for instance in listed}
    off = []
    for pk, provider_id, address in settled:
        instance = seen.get(provider_id)
        missing = instance is None and not listed.is_partial
        changed = instance is not None and (
            instance.state is not InstanceState.RUNNING or instance.address not in {None, address}
        )
        if missing or changed:
            off.append(pk)
    if off:
        hints.wake(off, now)
    return off

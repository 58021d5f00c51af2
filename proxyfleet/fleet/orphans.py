"""Orphan GC: deletes instances of this fleet that no proxy holds, and never one by mistake."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from providers.base import Provider
from providers.errors import ProviderError
from providers.instances import Instance
from proxyfleet.conf import settings
from proxyfleet.fleet.backends import providers
from proxyfleet.fleet.completeness import MirrorIncomplete, require_complete_mirror
from proxyfleet.fleet.models import EventKind, ProviderState, Proxy, ProxyEvent
from proxyfleet.fleet.strays import find_strays, is_stray
from proxyfleet.observability import metrics, tracing

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Orphan:
    """What a sweep found, and what became of it."""

    provider_id: str
    namespace: str
    name: str
    proxy_uid: str
    created_at: str
    action: str
    """deleted, would delete, kept (adopted meanwhile), left (for the next sweep) or failed."""
    message: str = ""


def _always() -> bool:
    return True


def sweep(entry: str, now: datetime, *, dry_run: bool = False, has_time: Callable[[], bool] = _always) -> list[Orphan]:
    """Collect the orphans of a configured entry, within the limits of the settings.

    Raises UnknownProvider, the ProviderError of a backend that can't be asked, and MirrorIncomplete, which is kept as
    the entry's error.
    """
    with tracing.span("collect orphans", provider=entry):
        return _sweep(entry, now, dry_run=dry_run, has_time=has_time)


def _sweep(entry: str, now: datetime, *, dry_run: bool, has_time: Callable[[], bool]) -> list[Orphan]:
    conf = settings()
    provider = providers().get(entry)
    try:
        require_complete_mirror(now)
    except MirrorIncomplete as incomplete:
        ProviderState.objects.update_or_create(entry=entry, defaults={"orphans_error": f"refused: {incomplete}"})
        raise
    return collect_orphans(
        entry,
        provider,
        now,
        min_age=timedelta(seconds=conf.gc_min_age),
        max_deletes=conf.gc_max_deletes,
        dry_run=dry_run,
        has_time=has_time,
    )


def collect_orphans(
    entry: str,
    provider: Provider,
    now: datetime,
    *,
    min_age: timedelta,
    max_deletes: int,
    dry_run: bool = False,
    has_time: Callable[[], bool] = _always,
) -> list[Orphan]:
    """Delete, at most ``max_deletes`` of them, the orphans at one provider entry that are older than ``min_age``.

    Begins no delete once ``has_time`` says no: a slow backend must not keep its entry's workers from the proxies.
    Raises the ProviderError of a listing that failed; what a partial listing does not show is left for the next sweep.
    """
    listed = provider.list()
    # Read after the listing: a row is older than its instance, so what is listed and has no row is nobody's.
    owners = {proxy.uid: proxy for proxy in Proxy.objects.filter(uid__in={i.identity.proxy_uid for i in listed})}
    strays = find_strays(listed, owners, fleet_id=settings().fleet_id, min_age=min_age, now=now)
    found = []
    for number, stray in enumerate(strays):
        if number >= max_deletes:
            found.append(_report(stray, "left", f"more than {max_deletes} in one sweep"))
        elif dry_run:
            found.append(_report(stray, "would delete"))
        elif not has_time():
            found.append(_report(stray, "left", "this sweep's time was up"))
        else:
            found.append(_delete(stray, provider, now, min_age))
    metrics.gc_deleted.labels(entry).inc(sum(orphan.action == "deleted" for orphan in found))
    if not dry_run:
        ProviderState.objects.update_or_create(
            entry=entry,
            defaults={
                "orphans_swept_at": now,
                "orphans": [asdict(orphan) for orphan in found],
                "orphans_error": f"did not answer: {', '.join(listed.unreachable)}" if listed.is_partial else "",
            },
        )
    return found


def _delete(stray: Instance, provider: Provider, now: datetime, min_age: timedelta) -> Orphan:
    owner = Proxy.objects.filter(uid=stray.identity.proxy_uid).first()
    if not is_stray(stray, owner, min_age=min_age, now=now):
        return _report(stray, "kept", "its proxy holds it by now")
    try:
        provider.delete(stray.provider_id)
    except ProviderError as error:
        logger.warning("Orphan %s can't be deleted: %s", stray.provider_id, error.detail)
        return _report(stray, "failed", str(error))
    logger.info("Deleted orphan %s of %s/%s", stray.provider_id, stray.identity.namespace, stray.identity.name)
    ProxyEvent.objects.create(
        proxy=owner,
        proxy_uid=stray.identity.proxy_uid,
        namespace=stray.identity.namespace,
        name=stray.identity.name,
        at=now,
        kind=EventKind.ORPHAN_DELETED,
        reason="NoOwner" if owner is None else "MovedOn",
        message=stray.provider_id,
    )
    return _report(stray, "deleted")


def _report(stray: Instance, action: str, message: str = "") -> Orphan:
    return Orphan(
        provider_id=stray.provider_id,
        namespace=stray.identity.namespace,
        name=stray.identity.name,
        proxy_uid=str(stray.identity.proxy_uid),
        created_at=stray.created_at.isoformat(timespec="seconds"),
        action=action,
        message=message,
    )

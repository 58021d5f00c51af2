"""Which proxies of a provider entry are due, and the claim that keeps two batches of one entry from overlapping.

The claim is a token and an expiry in the entry's ProviderState. At rest that one row is all that a tick writes; a tick
that finds nothing due writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import BigIntegerField, Q, QuerySet
from django.db.models.expressions import RawSQL

from health.schedule import epoch_ms, moment_at, next_slot_ms
from providers.config import EXTERNAL
from proxyfleet.fleet.backends import providers
from proxyfleet.fleet.models import ProviderState, Proxy
from proxyfleet.fleet.spec import MAX_PROBE_INTERVAL_SECONDS

_CLAIM_MARGIN = timedelta(seconds=30)
"""Between the last moment that a batch's probes can take and that when its worker counts as dead."""

_READ = (
    "uid",
    "namespace",
    "lane",
    "credentials_secret_name",
    "address",
    "address_port",
    "instance_serial",
    "health_url",
    "health_interval_seconds",
    "health_timeout_seconds",
    "expected_status",
)
"""What a probe needs to know of a proxy."""

_INTERVAL_MS = "(fleet_proxy.health_interval_seconds * 1000)"
_PHASE_MS = f"(('x' || right(fleet_proxy.uid::text, 8))::bit(32)::bigint %% {_INTERVAL_MS})"
_NEXT_SLOT_MS = f"((%s - {_PHASE_MS}) / {_INTERVAL_MS} * {_INTERVAL_MS} + {_PHASE_MS} + {_INTERVAL_MS})"


@dataclass(frozen=True, slots=True)
class Batch:
    """Proxies of one entry to probe now, held by this run alone."""

    entry: str
    token: UUID
    since: datetime
    """Slots after this moment are owed."""
    proxies: Sequence[Proxy]
    """In the order of the first slot that each is owed."""


def next_slot(after: datetime) -> RawSQL:
    """``schedule.next_slot_ms`` of a proxy, computed by PostgreSQL."""
    return RawSQL(_NEXT_SLOT_MS, [epoch_ms(after)], output_field=BigIntegerField())  # noqa: S611  the text is constant


def probeable() -> QuerySet[Proxy]:
    """Proxies that have an address and are not on their way out, with the columns that a probe needs."""
    reachable = Proxy.objects.exclude(address="").filter(address_port__isnull=False, deletion_requested_at=None)
    return reachable.only(*_READ)


def claim_due(entry: str, now: datetime, *, start_within: timedelta) -> Batch | None:
    """Take up what came due since the last batch of this entry.

    None when nothing did, or when another batch of the entry still runs: what it leaves out is due at the next tick.
    The claim lasts for ``start_within`` and the longest timeout in the batch.
    """
    if not ProviderState.objects.filter(pk=entry).exists():
        ProviderState.objects.bulk_create([ProviderState(entry=entry)], ignore_conflicts=True)
    with transaction.atomic():
        state = ProviderState.objects.select_for_update(no_key=True).get(pk=entry)
        if state.probe_claim_expires_at is not None and state.probe_claim_expires_at > now:
            return None
        since = _owed_since(state, now)
        candidates = probeable().filter(of(entry)).annotate(slot_ms=next_slot(since))
        proxies = list(candidates.filter(slot_ms__lte=epoch_ms(now)).order_by("slot_ms"))
        if not proxies:
            return None
        longest = timedelta(seconds=max(proxy.health_timeout_seconds for proxy in proxies))
        state.probed_until = now
        state.probe_claim_token = uuid4()
        state.probe_claim_expires_at = now + start_within + longest + _CLAIM_MARGIN
        state.save(update_fields=["probed_until", "probe_claim_token", "probe_claim_expires_at"])
    return Batch(entry, state.probe_claim_token, since, proxies)


def release(batch: Batch, *, unserved: Collection[int]) -> None:
    """Give the claim back. The proxies with these ids were not probed; they stay due."""
    columns: dict[str, datetime | None] = {"probe_claim_token": None, "probe_claim_expires_at": None}
    if unserved:
        left_out = (proxy for proxy in batch.proxies if proxy.pk in unserved)
        earliest = min(next_slot_ms(proxy.uid, proxy.health_interval_seconds, batch.since) for proxy in left_out)
        columns["probed_until"] = moment_at(earliest - 1)
    ProviderState.objects.filter(entry=batch.entry, probe_claim_token=batch.token).update(**columns)


def _owed_since(state: ProviderState, now: datetime) -> datetime:
    """The end of what was taken up. At the start, and when the clock was set back, every proxy is owed a slot."""
    if state.probed_until is None or state.probed_until > now:
        return now - timedelta(seconds=MAX_PROBE_INTERVAL_SECONDS)
    return state.probed_until


def of(entry: str) -> Q:
    """Proxies of entries that are not configured are probed with the External ones."""
    return ~Q(lane__in=providers().names()) if entry == EXTERNAL else Q(lane=entry)

"""What leasing knows. Reads only, but for the note of when a token was used."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import Q

from leasing.allocation import Wish, matching
from leasing.errors import LeaseEnded, LeaseNotFound, Shortage
from leasing.models import ApiToken, EndCause, EndedLease, Lease
from leasing.tokens import hash_token
from proxyfleet.fleet.phases import Phase

LAST_USED_PRECISION = timedelta(minutes=1)
"""A busy token would otherwise turn every request into a write of the same row."""


def is_open() -> bool:
    """No token was ever made. One that expired or was revoked keeps the API closed."""
    return not ApiToken.objects.exists()


def valid_token(secret: str, now: datetime) -> ApiToken | None:
    token = ApiToken.objects.filter(hash=hash_token(secret), revoked_at=None).first()
    if token is None or (token.expires_at is not None and token.expires_at <= now):
        return None
    used_long_ago = now - LAST_USED_PRECISION
    if token.last_used_at is None or token.last_used_at < used_long_ago:
        stale = Q(last_used_at=None) | Q(last_used_at__lt=used_long_ago)
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
    return token


def lease(lease_id: UUID, now: datetime) -> Lease:
    """The lease and its proxy, whatever became of the proxy's health. Raises LeaseNotFound or LeaseEnded."""
    found = Lease.objects.select_related("proxy").filter(pk=lease_id).first()
    if found is None:
        raise why_gone(lease_id)
    if found.expires_at <= now:
        raise LeaseEnded(EndCause.EXPIRED, found.expires_at)
    return found


def why_gone(lease_id: UUID) -> LeaseEnded | LeaseNotFound:
    """What to tell whoever asks for a lease that isn't there."""
    ended = EndedLease.objects.filter(pk=lease_id).first()
    return LeaseNotFound() if ended is None else LeaseEnded(ended.cause, ended.ended_at)


_SHORTAGE = """
with fleet as (
  select coalesce(load.leasable, false) as leasable,
    load.active >= load.max_leases as is_full,
    proxy.phase = any(%(draining)s) or proxy.cordoned or proxy.deletion_requested_at is not null as is_draining,
    (select until from leasing_cooldown
      where target = %(target)s and proxy_id = proxy.id and until > %(now)s) as rested_at,
    (select expires_at from leasing_lease where proxy_id = proxy.id and load.active >= load.max_leases
      order by expires_at offset greatest(load.active - load.max_leases, 0) limit 1) as slot_at
  from fleet_proxy proxy left join leasing_proxyload load on load.proxy_id = proxy.id
  where proxy.id in ({matching})
)
select count(*),
  count(*) filter (where not leasable and not is_draining),
  count(*) filter (where leasable and rested_at is null and is_full),
  count(*) filter (where leasable and rested_at is not null),
  count(*) filter (where not leasable and is_draining),
  min(greatest(rested_at, slot_at)) filter (where leasable)
from fleet
"""


def shortage(wish: Wish, now: datetime) -> Shortage:
    """Why nothing that matches can be leased."""
    matching_proxies, params = matching(wish)
    params |= {"draining": [Phase.REPLACING, Phase.TERMINATING], "target": wish.target, "now": now}
    with connection.cursor() as cursor:
        cursor.execute(_SHORTAGE.format(matching=matching_proxies), params)
        row = cursor.fetchone()
    return Shortage(*row)

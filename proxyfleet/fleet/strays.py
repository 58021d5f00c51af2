"""Which instances nobody holds. Pure: the orphan GC asks, and deletes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from providers.instances import Instance


class Owner(Protocol):
    """What a stray is judged by: the row of the proxy that an instance names."""

    provider_id: str
    creating_hash: str
    claim_expires_at: datetime | None


def find_strays(
    instances: Iterable[Instance], owners: Mapping[UUID, Owner], *, fleet_id: str, min_age: timedelta, now: datetime
) -> list[Instance]:
    """Instances of this fleet that no proxy holds, oldest first."""
    strays = [
        instance
        for instance in instances
        if instance.identity.fleet_id == fleet_id
        and is_stray(instance, owners.get(instance.identity.proxy_uid), min_age=min_age, now=now)
    ]
    return sorted(strays, key=lambda instance: instance.created_at)


def is_stray(instance: Instance, owner: Owner | None, *, min_age: timedelta, now: datetime) -> bool:
    """Old enough, and its proxy does not exist or has moved on to another instance."""
    if now - instance.created_at < min_age:
        return False
    if owner is None:
        return True
    if owner.claim_expires_at is not None and owner.claim_expires_at > now:
        return False  # being worked on this moment
    if owner.creating_hash == instance.identity.instance_hash:
        return False  # made by a create whose answer was lost; the next try adopts it
    return owner.provider_id != instance.provider_id

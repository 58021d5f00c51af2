"""Claims: one run at a time holds a proxy, and only the holder writes its result.

A claim is a token and an expiry in the row. A worker that died loses its claim by expiry; a result that comes back
after its claim was lost is dropped, because the write says ``WHERE claim_token = …``.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from providers.config import EXTERNAL
from proxyfleet.fleet.conditions import Condition, merge
from proxyfleet.fleet.models import Proxy, ProxyEvent
from proxyfleet.fleet.outcomes import Change
from proxyfleet.fleet.phases import TRANSITIONS, Phase, Verdict
from proxyfleet.fleet.ports import ports


class ClaimLost(Exception):
    """Another run holds the proxy by now, or the proxy is gone: whatever this run has is stale."""


@dataclass(slots=True)
class Claim:
    proxy: Proxy
    token: uuid.UUID


def claim(proxy_id: int, now: datetime, *, hold_for: timedelta) -> Claim | None:
    """Hold one proxy. None when another run holds it, or it is gone."""
    return _take("id = %(id)s", {"id": proxy_id}, now, hold_for)


def claim_next(
    entry: str, configured: frozenset[str], now: datetime, *, limit: int, hold_for: timedelta
) -> Claim | None:
    """Hold a proxy of this entry: one whose run has died, else the one that has been due for longest.

    None when there is neither, or ``limit`` are held already. ``hold_for`` must outlast a step: a run that dies keeps
    its proxy from the others for that long, and one that takes longer does its step in vain.
    """
    # Two look-ups that an index answers each: when ten thousand are due, none of them is sorted for each claim.
    condition = """
        id = coalesce(
            (
                SELECT id FROM fleet_proxy
                WHERE {lane} AND claim_token IS NOT NULL AND claim_expires_at <= %(now)s
                ORDER BY claim_expires_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
            ),
            (
                SELECT id FROM fleet_proxy
                WHERE {lane} AND claim_token IS NULL AND next_reconcile_at <= %(now)s
                ORDER BY next_reconcile_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
            )
        )
        AND (
            SELECT count(*) FROM fleet_proxy
            WHERE {lane} AND claim_token IS NOT NULL AND claim_expires_at > %(now)s
        ) < %(limit)s
    """
    lane = "NOT lane = ANY(%(lanes)s)" if entry == EXTERNAL else "lane = %(entry)s"
    values = {"entry": entry, "lanes": list(configured), "limit": limit}
    return _take(condition.format(lane=lane), values, now, hold_for)


def _take(condition: str, values: dict[str, Any], now: datetime, hold_for: timedelta) -> Claim | None:
    token = uuid.uuid4()
    # Clears `next_reconcile_at`; whoever changes something meanwhile sets it again, for the run that follows.
    statement = f"""
        UPDATE fleet_proxy SET claim_token = %(token)s, claim_expires_at = %(until)s, next_reconcile_at = NULL
        WHERE {condition} AND (claim_token IS NULL OR claim_expires_at <= %(now)s)
        RETURNING id
    """  # noqa: S608  the conditions are the two above
    with connection.cursor() as cursor:
        cursor.execute(statement, values | {"token": token, "until": now + hold_for, "now": now})
        row = cursor.fetchone()
    if row is None:
        return None
    proxy = Proxy.objects.filter(pk=row[0], claim_token=token).first()
    return Claim(proxy, token) if proxy else None


def apply(held: Claim, change: Change, *, now: datetime, keep: bool = False) -> None:
    """Write ``change``, its events and what it means for leases in one transaction.

    The claim is given back, unless told to ``keep`` it. Raises ClaimLost when it is no longer ours; nothing is written.
    """
    with transaction.atomic():
        current = Proxy.objects.select_for_update(no_key=True).filter(pk=held.proxy.pk, claim_token=held.token).first()
        if current is None:
            raise ClaimLost(f"{held.proxy} is held by another run or gone")
        if change.release:
            _release(current, change, now)
            return
        before = Phase(current.phase)
        dirty = [name for name, value in change.columns.items() if getattr(current, name) != value]
        for name in dirty:
            setattr(current, name, change.columns[name])
        after = Phase(current.phase)
        if after is not before:
            assert after in TRANSITIONS[before], f"{current}: {before} → {after} is not a transition"
            current.phase_changed_at = now
            dirty.append("phase_changed_at")
        conditions = merge(current.conditions, _conditions(current, change), generation=current.generation, now=now)
        if conditions != current.conditions:
            current.conditions = conditions
            dirty.append("conditions")
        if change.notes or not _VISIBLE.isdisjoint(dirty):
            current.revision += 1
            dirty.append("revision")
        if not keep:
            current.claim_token = current.claim_expires_at = None
            if change.next_reconcile_at is not None:
                current.next_reconcile_at = min(filter(None, (current.next_reconcile_at, change.next_reconcile_at)))
        current.save(update_fields=[*dirty, "claim_token", "claim_expires_at", "next_reconcile_at"])
        _append_events(current, change, before, now)
        if after is not before:
            publish(current)
        if change.end_leases:
            ports.leases.end_all(current.pk, cause=change.end_leases, now=now)
        if change.probe:
            ports.prober.probe_soon([current.pk])
    held.proxy = current


def publish(proxy: Proxy) -> None:
    """Tell leasing what became of the proxy, in the transaction that changed it."""
    ports.leases.publish(proxy.pk, leasable=proxy.is_leasable, max_leases=proxy.max_leases, generation=proxy.generation)


def _release(proxy: Proxy, change: Change, now: datetime) -> None:
    _append_events(proxy, change, Phase(proxy.phase), now)
    publish(proxy)
    ports.leases.end_all(proxy.pk, cause=change.end_leases, now=now)
    proxy.delete()


_VISIBLE = frozenset(
    {
        "phase",
        "reason",
        "message",
        "conditions",
        "provider_id",
        "instance_hash",
        "address",
        "address_port",
        "observed_generation",
    }
)


def _conditions(proxy: Proxy, change: Change) -> list[Condition]:
    current: list[Condition] = [change.provisioned] if change.provisioned else []
    match proxy.current_verdict:
        case Verdict.HEALTHY:
            current.append(Condition("Healthy", "True", "ProbeSucceeded"))
        case Verdict.UNHEALTHY:
            current.append(Condition("Healthy", "False", proxy.last_outcome or "ProbeFailed", proxy.health_message))
        case _:
            current.append(Condition("Healthy", "Unknown", "NotProbed"))
    ready = proxy.phase == Phase.READY
    current.append(Condition("Ready", "True" if ready else "False", proxy.reason or str(proxy.phase), proxy.message))
    return current


def _append_events(proxy: Proxy, change: Change, before: Phase, now: datetime) -> None:
    events = [event_of(proxy, note.kind, now, reason=note.reason, message=note.message) for note in change.notes]
    if proxy.phase != before:
        event = event_of(proxy, "PhaseChanged", now, reason=proxy.reason, message=proxy.message)
        event.old_phase, event.new_phase = before, proxy.phase
        events.append(event)
    ProxyEvent.objects.bulk_create(events)


def event_of(
    proxy: Proxy, kind: str, now: datetime, *, reason: str = "", message: str = "", actor: str = ""
) -> ProxyEvent:
    """An unsaved event of this proxy."""
    return ProxyEvent(
        proxy=proxy,
        proxy_uid=proxy.uid,
        namespace=proxy.namespace,
        name=proxy.name,
        at=now,
        kind=kind,
        reason=reason,
        message=message,
        actor=actor,
    )

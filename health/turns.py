"""Turns: one run at a time takes up the probes of a provider entry, and keeps on while any of them run.

A turn is a token and an expiry in the entry's ProviderState, renewed while the run lives: a worker that was killed
keeps the entry for half a minute and no longer. At rest that one row is all that is written, when a turn begins and
when it ends; a tick that finds nothing due writes nothing.

What came due is known by arithmetic (`health.schedule`), from the moment up to which every slot has been served. That
moment never passes a slot whose result is not written yet: what a killed worker had taken up is due again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import BigIntegerField, Q, QuerySet
from django.db.models.expressions import RawSQL

from health.prompt import asked_for
from health.results import Measured
from health.schedule import epoch_ms, moment_at
from providers.config import EXTERNAL
from proxyfleet.fleet.backends import providers
from proxyfleet.fleet.models import PromptProbe, ProviderState, Proxy
from proxyfleet.fleet.spec import MAX_PROBE_INTERVAL_SECONDS, MAX_PROBE_SECONDS

CLAIM = timedelta(seconds=30)
"""How long a turn is kept for a run that gives no sign of life."""

_RENEWAL = CLAIM / 3
_LONGEST_PROBE = timedelta(seconds=MAX_PROBE_SECONDS + 30)

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


class TurnLost(Exception):
    """Another run has taken over, as this one gave no sign of life for too long."""


@dataclass(slots=True)
class Turn:
    entry: str
    token: UUID
    since: datetime
    """Slots up to here have been taken up, here or before."""
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Due:
    """A proxy to probe now."""

    proxy: Proxy
    slot_ms: int | None
    """The first slot that it is owed; None: somebody asked for it before."""
    asked: bool = False
    """Somebody waits for it."""

    @property
    def key(self) -> Measured:
        return Measured.of(self.proxy)


def next_slot(after: datetime) -> RawSQL:
    """``schedule.next_slot_ms`` of a proxy, computed by PostgreSQL."""
    return RawSQL(_NEXT_SLOT_MS, [epoch_ms(after)], output_field=BigIntegerField())  # noqa: S611  the text is constant


def probeable() -> QuerySet[Proxy]:
    """Proxies that have an address and are not on their way out, with the columns that a probe needs."""
    reachable = Proxy.objects.exclude(address="").filter(address_port__isnull=False, deletion_requested_at=None)
    return reachable.only(*_READ)


def begin(entry: str, now: datetime) -> Turn | None:
    """Take the turn at an entry. None when another run has it, or there is nothing to do."""
    state = ProviderState.objects.filter(pk=entry).first() or ProviderState(entry=entry)
    since = _owed_since(state, now)
    if _is_held(state, now) or not _has_work(entry, state, since, now):
        return None
    ProviderState.objects.bulk_create([ProviderState(entry=entry)], ignore_conflicts=True)
    turn = Turn(entry, uuid4(), since, now + CLAIM)
    # As it was read: of two runs that come at once, the second finds another token.
    as_read = ProviderState.objects.filter(pk=entry, probe_claim_token=state.probe_claim_token)
    if state.probe_claim_token is not None:
        as_read = as_read.filter(probe_claim_expires_at=state.probe_claim_expires_at)
    claimed = as_read.update(probe_claim_token=turn.token, probe_claim_expires_at=turn.expires_at)
    return turn if claimed else None


def take(turn: Turn, now: datetime, *, running: Mapping[Measured, int | None]) -> list[Due]:
    """What came due since the last call, or was asked for, in the order of the first slot that each is owed.

    ``running`` has what was taken before and has no result yet, with its slot: a proxy that is among it is not taken
    again, as the probe that runs counts for its slot, too. Raises TurnLost.
    """
    state = ProviderState.objects.filter(pk=turn.entry, probe_claim_token=turn.token).first()
    if state is None:
        raise TurnLost(turn.entry)
    elsewhere, abandoned = _left_running(state, now)
    busy = running.keys() | elsewhere
    of_entry = probeable().filter(of(turn.entry))
    abandoned_ids = {key.proxy_id for key in abandoned}
    asked = set(of_entry.filter(asked_for(turn.token)).values_list("pk", flat=True))
    found = of_entry.annotate(slot_ms=next_slot(turn.since)).filter(
        Q(slot_ms__lte=epoch_ms(now)) | Q(pk__in=asked | abandoned_ids)
    )
    due = {}
    for proxy in found.order_by("slot_ms"):
        slot = proxy.slot_ms if proxy.slot_ms <= epoch_ms(now) else None
        due[Measured.of(proxy)] = Due(proxy, slot, asked=proxy.pk in asked)
    taken = [each for key, each in due.items() if key not in busy]
    turn.since = now
    if not taken and not abandoned and turn.expires_at - now > CLAIM - _RENEWAL:
        return []
    turn.expires_at = now + CLAIM
    renewed = ProviderState.objects.filter(pk=turn.entry, probe_claim_token=turn.token).update(
        probe_claim_expires_at=turn.expires_at,
        probed_until=_served_until(turn, [*running.values(), *(each.slot_ms for each in taken)]),
        probes_left_running=_as_json(elsewhere, state),
    )
    if not renewed:
        raise TurnLost(turn.entry)
    if taken_asked := [each.proxy.pk for each in taken if each.asked]:
        PromptProbe.objects.filter(proxy__in=taken_asked).update(turn=turn.token)
    # Who is asked for did not wait for a slot, and does not wait for others'.
    return sorted(taken, key=lambda each: not each.asked)


def end(turn: Turn, *, unserved: Iterable[int | None], leaving: Mapping[Measured, datetime]) -> bool:
    """Give the turn back; False when it was lost before.

    ``unserved`` are the slots of what was taken and not begun: it stays due. ``leaving`` has what still runs, and when
    each ends at the latest: the next turn leaves it alone until then, or until `settle` tells that it has ended.
    """
    with transaction.atomic():
        held = ProviderState.objects.select_for_update(no_key=True).filter(pk=turn.entry, probe_claim_token=turn.token)
        state = held.first()
        if state is None:
            return False
        state.probe_claim_token = state.probe_claim_expires_at = None
        state.probed_until = _served_until(turn, unserved)
        left = [[key.proxy_id, key.instance_serial, epoch_ms(until)] for key, until in leaving.items()]
        state.probes_left_running = [*state.probes_left_running, *left]
        state.save(update_fields=["probe_claim_token", "probe_claim_expires_at", "probed_until", "probes_left_running"])
    return True


def settle(turn: Turn, left: Collection[Measured]) -> None:
    """Those that ran on after the turn have ended."""
    with transaction.atomic():
        state = ProviderState.objects.select_for_update(no_key=True).get(pk=turn.entry)
        ended = {(key.proxy_id, key.instance_serial) for key in left}
        state.probes_left_running = [mark for mark in state.probes_left_running if (mark[0], mark[1]) not in ended]
        state.save(update_fields=["probes_left_running"])


def _has_work(entry: str, state: ProviderState, since: datetime, now: datetime) -> bool:
    # What still runs for an earlier turn is nothing to do.
    elsewhere, abandoned = _left_running(state, now)
    if abandoned:
        return True
    of_entry = probeable().filter(of(entry))
    asked = of_entry.filter(asked_for(None)).values_list("pk", "instance_serial")
    if any(Measured(*key) not in elsewhere for key in asked):
        return True
    due = of_entry.annotate(slot_ms=next_slot(since)).filter(slot_ms__lte=epoch_ms(now))
    return due.exclude(pk__in=[key.proxy_id for key in elsewhere]).exists()


def _is_held(state: ProviderState, now: datetime) -> bool:
    """An expiry that is too far ahead was written before the clock was set back."""
    expires_at = state.probe_claim_expires_at
    return expires_at is not None and now < expires_at <= now + 2 * CLAIM


def _owed_since(state: ProviderState, now: datetime) -> datetime:
    """The end of what was served. At the start, and when the clock was set back, every proxy is owed a slot.

    No worker's clock agrees with another's quite: a little ahead is not set back.
    """
    if state.probed_until is None or state.probed_until > now + CLAIM:
        return now - timedelta(seconds=MAX_PROBE_INTERVAL_SECONDS)
    return state.probed_until


def _served_until(turn: Turn, slots: Iterable[int | None]) -> datetime:
    """Just before the first of these slots, which have no result yet."""
    return min([turn.since, *(moment_at(slot - 1) for slot in slots if slot is not None)])


def _left_running(state: ProviderState, now: datetime) -> tuple[set[Measured], set[Measured]]:
    """Probes of earlier turns that run on, and those that should have ended and never told: their worker has died."""
    running: set[Measured] = set()
    abandoned: set[Measured] = set()
    for proxy_id, serial, until in state.probes_left_running:
        runs = now < moment_at(until) <= now + _LONGEST_PROBE
        (running if runs else abandoned).add(Measured(proxy_id, serial))
    return running, abandoned


def _as_json(running: Collection[Measured], state: ProviderState) -> list[list[int]]:
    return [mark for mark in state.probes_left_running if Measured(mark[0], mark[1]) in running]


def of(entry: str) -> Q:
    """Proxies of entries that are not configured are probed with the External ones."""
    return ~Q(lane__in=providers().names()) if entry == EXTERNAL else Q(lane=entry)

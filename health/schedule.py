"""When a proxy is due, without a word of state per proxy: slots on the clock, shifted per proxy.

A proxy has a slot at every ``k * interval + phase(uid, interval)`` since the epoch; a tick serves the slots after the
previous tick up to now. So each slot is served exactly once whatever the ticks' rhythm, a late tick probes a proxy once
and not many times, and a fleet spreads evenly because the phases do.

All is integer milliseconds, so that PostgreSQL computes the very same slots from the same columns.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def epoch_ms(moment: datetime) -> int:
    """Whole milliseconds from the epoch to ``moment`` (aware)."""
    return (moment - _EPOCH) // _MILLISECOND


def phase_ms(uid: UUID, interval_seconds: int) -> int:
    """A proxy's place within its interval: the uid's last 32 bits, which are random in versions 4 and 7."""
    return (uid.int & 0xFFFF_FFFF) % (interval_seconds * 1000)


def slot(uid: UUID, interval_seconds: int, moment: datetime) -> int:
    """Number of the latest slot at ``moment``."""
    return (epoch_ms(moment) - phase_ms(uid, interval_seconds)) // (interval_seconds * 1000)


def is_due(uid: UUID, interval_seconds: int, *, previous_tick: datetime, now: datetime) -> bool:
    """Is there a slot in ``(previous_tick, now]``?"""
    return slot(uid, interval_seconds, now) > slot(uid, interval_seconds, previous_tick)

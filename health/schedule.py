"""When a proxy is due, without a word of state per proxy: slots on the clock, shifted per proxy.

A proxy has a slot at every ``k * interval + phase(uid, interval)`` since the epoch; a tick serves the slots after the
previous tick up to now. So each slot is served exactly once whatever the ticks' rhythm, a late tick probes a proxy once
and not many times, and a fleet spreads evenly because the phases do. Served in the order of the first slot that is
owed, a fleet that is more than its workers can probe gets each proxy probed in its turn, if less often.

All is integer milliseconds, so that PostgreSQL computes the very same slots from the same columns (``health.turns``).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def epoch_ms(moment: datetime) -> int:
    """Whole milliseconds from the epoch to ``moment`` (aware)."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def moment_at(milliseconds: int) -> datetime:
    """The moment that is ``milliseconds`` after the epoch."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def phase_ms(uid: UUID, interval_seconds: int) -> int:
    """A proxy's place within its interval: the uid's last 32 bits, which are random in versions 4 and 7."""
    return (uid.int & 0xFFFF_FFFF) % (interval_seconds * 1000)


def next_slot_ms(uid: UUID, interval_seconds: int, after: datetime) -> int:
    """The first slot after the moment ``after``, in milliseconds since the epoch.

    With ``after`` the time of the previous tick, a proxy is due once this has come.
    """
    phase = phase_ms(uid, interval_seconds)
    interval = interval_seconds * 1000
    return (epoch_ms(after) - phase) // interval * interval + phase + interval

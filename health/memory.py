"""What the last day's probes found, kept beside the broker's messages: docs/decisions/0019.

A fleet at rest writes nothing to the database, so when a proxy was last probed and how quick it was is not there. It is
here, for people to look at: nothing is decided by it, and it may be lost at any moment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from celery import current_app
from kombu.exceptions import KombuError
from redis import Redis
from redis.exceptions import RedisError

from health.results import ProbeResult
from proxyfleet.conf import settings
from proxyfleet.fleet.ports import LastProbe, ProbeSlot

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)

SLOT = timedelta(minutes=5)
DAY = timedelta(days=1)
SLOTS = int(DAY / SLOT)
EXPIRES = 2 * int(DAY.total_seconds())
"""In seconds. Of a day's key and of a last probe: today and yesterday are always whole."""

SILENCE_SECONDS = 30
"""How long a broker that did not answer is left alone: probes and pages must not wait for it each time."""

_BITS = 32
"""Of one slot: probes that went well, probes that failed (8 each, saturating), and the last good one's ms (16)."""


class _Broker:
    silent_until = 0.0
    """By ``time.monotonic()``."""


def keep(uids: Mapping[int, UUID], results: Sequence[ProbeResult[Any]], moment: datetime) -> None:
    """Remember ``results``, whose keys name proxies by the ids in ``uids``; a broker that is down costs only these."""
    slot, day = _slot(moment)

    def write(client: Any) -> None:
        pipe = client.pipeline(transaction=False)
        for result in results:
            uid = uids[result.key.proxy_id]
            milliseconds = min(max(round(sum(result.seconds.values()) * 1000), 1), 0xFFFF)
            field = pipe.bitfield(_of_day(uid, day), default_overflow="SAT")
            if result.is_ok:
                field.incrby("u8", slot * _BITS, 1).set("u16", slot * _BITS + 16, milliseconds)
            else:
                field.incrby("u8", slot * _BITS + 8, 1)
            field.execute()  # into the pipe, as all that follows
            pipe.expire(_of_day(uid, day), EXPIRES)
            pipe.set(_last(uid), f"{moment.timestamp():.3f} {milliseconds} {result.outcome}", ex=EXPIRES)
        pipe.execute()

    _ask(write, None)


def keep_check(entry: str, moment: datetime) -> None:
    """Remember when the backend of ``entry`` was checked."""
    _ask(lambda client: client.set(_check(entry), f"{moment.timestamp():.3f}", ex=EXPIRES), None)


class ProbesByBroker:
    """`proxyfleet.fleet.ports.ProbeMemory`."""

    def last_each(self, uids: Collection[UUID]) -> Mapping[UUID, LastProbe]:
        wanted = list(uids)
        if not wanted:
            return {}
        nothing: list[bytes | None] = [None] * len(wanted)
        found = _ask(lambda client: client.mget([_last(uid) for uid in wanted]), nothing)
        return {uid: _parse(text) for uid, text in zip(wanted, found, strict=True) if text is not None}

    def last_day(self, uid: UUID, now: datetime) -> Sequence[ProbeSlot]:
        slot, today = _slot(now)
        nothing: list[bytes | None] = [None, None]
        days = _ask(lambda client: client.mget([_of_day(uid, today - 1), _of_day(uid, today)]), nothing)
        both = b"".join((text or b"").ljust(SLOTS * 4, b"\0") for text in days)
        newest = SLOTS + slot
        return [
            found
            for number in range(newest - SLOTS + 1, newest + 1)
            if (found := _read_slot(both, number, begin=_beginning(today - 1)))
        ]

    def last_check(self, entry: str) -> datetime | None:
        text: bytes | None = _ask(lambda client: client.get(_check(entry)), None)
        return datetime.fromtimestamp(float(text), UTC) if text else None


def _read_slot(both: bytes, number: int, *, begin: datetime) -> ProbeSlot | None:
    good, failed = both[number * 4], both[number * 4 + 1]
    if not good and not failed:
        return None
    milliseconds = int.from_bytes(both[number * 4 + 2 : number * 4 + 4], "big")
    return ProbeSlot(begin + number * SLOT, good, failed, milliseconds if good else None)


def _parse(text: bytes) -> LastProbe:
    at, milliseconds, outcome = text.decode().split(" ")
    return LastProbe(datetime.fromtimestamp(float(at), UTC), int(milliseconds), outcome)


def _slot(moment: datetime) -> tuple[int, int]:
    """The slot of the day, and the day since 1970, both in UTC."""
    day, seconds = divmod(int(moment.timestamp()), int(DAY.total_seconds()))
    return seconds // int(SLOT.total_seconds()), day


def _beginning(day: int) -> datetime:
    return datetime.fromtimestamp(day * DAY.total_seconds(), UTC)


def _of_day(uid: UUID, day: int) -> str:
    return f"{settings().fleet_id}:probes:{uid.hex}:{day}"


def _check(entry: str) -> str:
    return f"{settings().fleet_id}:check:{entry}"


def _last(uid: UUID) -> str:
    return f"{settings().fleet_id}:probe:{uid.hex}"


def _ask(question: Callable[[Any], Answer], otherwise: Answer) -> Answer:
    """Put to the broker over its own connection; ``otherwise`` where there is none, or its protocol is not Redis's."""
    if time.monotonic() < _Broker.silent_until:
        return otherwise
    try:
        pool: Any = current_app.pool  # the stubs take it for that of producers
        with pool.acquire(block=True, timeout=1) as connection:
            # Else it would be tried for ever.
            connection.ensure_connection(max_retries=1, interval_start=0)
            client = getattr(connection.default_channel, "client", None)
            return question(client) if isinstance(client, Redis) else otherwise
    except (KombuError, RedisError, OSError) as error:
        _Broker.silent_until = time.monotonic() + SILENCE_SECONDS
        logger.warning("What probes found is not kept or shown for %d s: %s", SILENCE_SECONDS, type(error).__name__)
        return otherwise

"""Identifiers that grow with time, so that an index takes new rows at its end."""

from __future__ import annotations

import secrets
import uuid
from datetime import datetime

_TIMESTAMP_SHIFT = 80
_VERSION = 7 << 76
_VARIANT = 2 << 62


def uuid7(now: datetime) -> uuid.UUID:
    """A version 7 UUID (RFC 9562): milliseconds of ``now``, then 74 random bits."""
    milliseconds = int(now.timestamp() * 1000)
    return uuid.UUID(
        int=milliseconds << _TIMESTAMP_SHIFT | _VERSION | secrets.randbits(12) << 64 | _VARIANT | secrets.randbits(62)
    )


def first_uuid7(moment: datetime) -> uuid.UUID:
    """No version 7 UUID of ``moment`` or later sorts before it."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << _TIMESTAMP_SHIFT)

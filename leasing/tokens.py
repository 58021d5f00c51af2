"""The secret of an API token: how it is made, hashed and recognised."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from enum import StrEnum

SECRET_BYTES = 32
MARK = "pf_"
"""Begins every token that we make, so that secret scanners can find one that leaked."""
PREFIX_LENGTH = len(MARK) + 6


class Scope(StrEnum):
    """What a token may be used for. None includes another."""

    READ = "read"
    """See proxies and targets."""
    LEASE = "lease"
    """Lease proxies and report on them."""
    OPERATE = "operate"
    """Declare and delete proxies."""


ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token on its way to the only person who will see it."""

    secret: str

    @classmethod
    def generate(cls) -> NewToken:
        return cls(MARK + secrets.token_urlsafe(SECRET_BYTES))

    @property
    def prefix(self) -> str:
        return self.secret[:PREFIX_LENGTH]

    def __repr__(self) -> str:
        return f"NewToken({self.prefix}…)"


def hash_token(secret: str) -> str:
    """SHA-256 is enough: no dictionary holds 32 random bytes, and a slow hash would slow every request.

    Finding the row by this hash leaks nothing by its timing: nobody can steer the hash towards a stored one.
    """
    return hashlib.sha256(secret.encode()).hexdigest()

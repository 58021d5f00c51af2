"""Who may call the API: its tokens, from the first to the last day of each."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from leasing.models import ApiToken
from leasing.tokens import ALL_SCOPES, NewToken, Scope, hash_token

LAST_USED_PRECISION = timedelta(minutes=1)
"""A busy token would otherwise turn every request into a write of the same row."""
REMEMBERED = timedelta(seconds=2)
"""How long a token is taken for good without asking again: so long a revoked one may still get in."""
SEEDED_NAME = "discovery-token"

log = logging.getLogger(__name__)


def is_open() -> bool:
    """No token was ever made. One that expired or was revoked keeps the API closed."""
    return not ApiToken.objects.exists()


def find_token(secret: str, now: datetime) -> ApiToken | None:
    """The token, if it is good at this time; notes that it was used."""
    token = ApiToken.objects.filter(hash=hash_token(secret), revoked_at=None).first()
    if token is None or (token.expires_at is not None and token.expires_at <= now):
        return None
    noted_long_ago = now - LAST_USED_PRECISION
    if token.last_used_at is None or token.last_used_at < noted_long_ago:
        due = Q(last_used_at=None) | Q(last_used_at__lt=noted_long_ago)
        ApiToken.objects.filter(due, pk=token.pk).update(last_used_at=now)
    return token


@dataclass(frozen=True, slots=True)
class KnownToken:
    name: str
    scopes: frozenset[Scope]
    expires_at: datetime | None
    requests_per_second: int | None


class KnownTokens:
    """The good tokens that were used lately, by their hashes. Each process has its own."""

    def __init__(self, remembered: timedelta = REMEMBERED) -> None:
        self._remembered = remembered
        self._known: dict[str, tuple[KnownToken, datetime]] = {}

    def find(self, secret: str, now: datetime) -> KnownToken | None:
        """The token, if it was good a moment ago and has not expired since."""
        digest = hash_token(secret)
        known = self._known.get(digest)
        if known is not None:
            token, seen_at = known
            is_fresh = timedelta(0) <= now - seen_at < self._remembered
            if is_fresh and (token.expires_at is None or token.expires_at > now):
                return token
        return self._look_up(secret, digest, now)

    def _look_up(self, secret: str, digest: str, now: datetime) -> KnownToken | None:
        found = find_token(secret, now)
        if found is None:
            self._known.pop(digest, None)
            return None
        scopes = frozenset(Scope(scope) for scope in found.scopes)
        token = KnownToken(found.name, scopes, found.expires_at, found.requests_per_second)
        self._known[digest] = token, now
        return token


tokens = KnownTokens()
"""Those of this process."""


def create_token(
    name: str,
    scopes: Iterable[Scope],
    *,
    created_by: str,
    now: datetime,
    expires_at: datetime | None = None,
    requests_per_second: int | None = None,
) -> NewToken:
    """A new token. What is returned is the only copy of its secret. Raises ValidationError."""
    new = NewToken.generate()
    token = ApiToken(
        name=name,
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
        requests_per_second=requests_per_second,
        created_by=created_by,
        created_at=now,
    )
    issue(token, new)
    return new


def issue(token: ApiToken, new: NewToken) -> None:
    """Give a token that was filled in, but never saved, its secret. Raises ValidationError."""
    token.hash, token.prefix = hash_token(new.secret), new.prefix
    token.full_clean()
    token.save(force_insert=True)


def revoke_token(token_id: int, *, now: datetime) -> None:
    """The token is refused from now on. Its row stays, as the record of what it was."""
    ApiToken.objects.filter(pk=token_id, revoked_at=None).update(revoked_at=now)


def seed_token(secret: str, *, now: datetime) -> None:
    """Let ``secret`` in with every scope, in place of the one that was seeded before.

    The same secret again changes nothing: one that was revoked stays so. Nothing of it is kept to recognise it
    by, since whoever chose it may have chosen it short.
    """
    digest = hash_token(secret)
    fresh = ApiToken(name=SEEDED_NAME, hash=digest, scopes=sorted(ALL_SCOPES), created_by="settings", created_at=now)
    ApiToken.objects.bulk_create([fresh], ignore_conflicts=True)  # several web processes start at once
    seeded = ApiToken.objects.get(name=SEEDED_NAME)
    if seeded.hash != digest:
        seeded.hash, seeded.revoked_at, seeded.expires_at = digest, None, None
        seeded.save(update_fields=["hash", "revoked_at", "expires_at"])


def prepare_access(secret: str | None, *, now: datetime) -> None:
    """For the start of a web process: seed the token of the settings, and say so loudly when anyone may come in."""
    if secret:
        seed_token(secret, now=now)
    if is_open():
        log.warning(
            "THE API IS OPEN: there is no API token, so anyone who reaches it may lease, declare and delete proxies. "
            "Make a token in the admin or with 'manage.py create_token', or set PROXYFLEET_DISCOVERY_TOKEN."
        )

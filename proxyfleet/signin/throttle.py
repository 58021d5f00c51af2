"""How often one may try: each try is taken before the password is looked at, and given back when it was right.

So tries that arrive at the same moment, at any number of web processes, don't get past the limit: they queue for one
row. A try that is refused isn't counted, so the wait ends, whoever goes on trying.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from django.db import connection, transaction
from django.db.models import F

from proxyfleet.signin.models import FailedSignIns

FAILURES_OF_NAME = 5
"""Of one user name from one address: a name alone would let anyone lock anyone out."""

FAILURES_OF_ADDRESS = 30
"""Of all names from one address: an office has many people, and who guesses tries many names."""

WAIT = timedelta(minutes=15)
"""From the last failure on: how long one who failed too often is refused, and when failures are forgotten."""

_TAKE = """
insert into signin_failedsignins as known (key, failures, last_at) values (%(key)s, 1, %(now)s)
on conflict (key) do update
set failures = case when known.last_at <= %(forgotten)s then 1 else known.failures + 1 end, last_at = %(now)s
where known.failures < %(limit)s or known.last_at <= %(forgotten)s
"""

# Rows that somebody holds are left to the next one: it holds two at a time, and would be waited for in a circle.
_FORGET = """
delete from signin_failedsignins where key in (
  select key from signin_failedsignins where last_at <= %(forgotten)s for update skip locked
)
"""


@dataclass(frozen=True, slots=True)
class _Limit:
    key: str
    failures: int


class TooManyFailures(Exception):
    """Not before ``until`` again."""

    def __init__(self, until: datetime) -> None:
        super().__init__(f"not before {until:%H:%M:%S}")
        self.until = until


def take(username: str, address: str, now: datetime) -> None:
    """Count a try as failed, before it is known. Raises TooManyFailures; such a try is not to be made."""
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, {"forgotten": now - WAIT})
    with transaction.atomic():  # what is refused by one limit does not count for the other
        for limit in _limits(username, address):
            if not _take(limit, now):
                row = FailedSignIns.objects.filter(key=limit.key).first()
                # None: somebody has signed in since.
                raise TooManyFailures(row.last_at + WAIT if row else now)


def _take(limit: _Limit, now: datetime) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, {"key": limit.key, "limit": limit.failures, "now": now, "forgotten": now - WAIT})
        return bool(cursor.rowcount)


def give_back(username: str, address: str) -> None:
    """The try was good: what the name has failed before is forgotten, and the try itself of the address."""
    of_address, of_name = _limits(username, address)
    FailedSignIns.objects.filter(key=of_name.key).delete()
    FailedSignIns.objects.filter(key=of_address.key, failures__gt=0).update(failures=F("failures") - 1)


def _limits(username: str, address: str) -> Iterator[_Limit]:
    yield _Limit(_key(address), FAILURES_OF_ADDRESS)
    yield _Limit(_key(address, username.casefold()), FAILURES_OF_NAME)


def _key(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()

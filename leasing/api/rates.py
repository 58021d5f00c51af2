"""How many requests a second a token may make.

Counted in each web process for itself: a count that all share would cost every request a round trip, as much as a
lease. A token that is served by N processes thus gets up to N times its rate, and no less than its rate.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime

from leasing.api.authentication import Caller
from leasing.api.problems import TooManyRequests
from proxyfleet.conf import settings


@dataclass(slots=True)
class _Allowance:
    """A bucket that fills at the rate of the token and holds what one second brings."""

    requests: float
    counted_at: datetime


class Rates:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._allowances: dict[str, _Allowance] = {}

    def spend(self, name: str, per_second: int, now: datetime) -> float:
        """Count a request. Returns the seconds after which another try is worth it; 0: it may pass."""
        with self._lock:
            allowance = self._allowances.setdefault(name, _Allowance(per_second, now))
            passed = max(0.0, (now - allowance.counted_at).total_seconds())
            allowance.requests = min(per_second, allowance.requests + passed * per_second)
            allowance.counted_at = now
            if allowance.requests < 1:
                return (1 - allowance.requests) / per_second
            allowance.requests -= 1
            return 0


_rates = Rates()


def spend(caller: Caller, now: datetime) -> None:
    """Count a request of the caller's. Raises TooManyRequests."""
    per_second = caller.requests_per_second or settings().token_rate_limit
    if per_second is not None and (wait := _rates.spend(caller.name, per_second, now)):
        raise TooManyRequests(wait)

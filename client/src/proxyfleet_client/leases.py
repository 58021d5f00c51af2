"""What a lease is, whoever waits for the API's answers."""

from __future__ import annotations

import logging
from typing import Any

from proxyfleet_client.answers import Grant
from proxyfleet_client.calls import Call
from proxyfleet_client.errors import LeaseEnded, Refused, Unreachable
from proxyfleet_client.outcomes import Outcome

logger = logging.getLogger(__name__)


class HeldLease(Outcome):
    """A proxy that is ours until the ``with`` block ends.

    What is observed of it is reported at the end, the worst of it once.
    """

    def __init__(self, wanted: Call) -> None:
        super().__init__()
        self._wanted = wanted
        self._grant: Grant | None = None
        self.ended: str | None = None
        """Why it is over already, once a renewal was refused; requests through the proxy may go on working."""

    @property
    def grant(self) -> Grant:
        if self._grant is None:
            raise RuntimeError("the lease is taken when its `with` block begins")
        return self._grant

    @property
    def url(self) -> str:
        """For the proxy setting of an HTTP client."""
        return self.grant.proxy.url

    def __str__(self) -> str:
        return f"{self.grant.lease_id} of {self.grant.proxy.id}"

    def _granted(self, answer: Any) -> None:
        self._grant = Grant.read(answer)

    @property
    def renewal_pause(self) -> float:
        """Seconds from one renewal to the next: two tries fit before the lease ends."""
        return self.grant.ttl / 3

    def renewal_failed(self, problem: Refused | Unreachable) -> None:
        """Go on for as long as the API does not say that it is over."""
        if isinstance(problem, Refused):
            self.ended = problem.cause if isinstance(problem, LeaseEnded) else problem.code
        logger.warning("Lease %s was not renewed: %s", self, problem)

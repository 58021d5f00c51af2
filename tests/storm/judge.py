"""Judges what the clients of the lease API were told, by nothing but their own clocks and notes.

What a client knows bounds what was true at the server. A lease was certainly out from the moment that its answer came
until its release was sent or its time was over; it was possibly out from the moment that it was asked for until its
release was answered or, again, its time was over. All times are of the clock of one machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple


@dataclass(slots=True)
class Told:
    """One lease, as its client was told of it."""

    lease_id: str
    proxy: str
    address: str
    """Tells one instance of a proxy from the next: a lease ends with its instance."""
    asked: float
    granted: float
    certain_until: float
    possible_until: float


class Span(NamedTuple):
    begin: float
    end: float


@dataclass(slots=True)
class Unrest:
    """What the control plane did to the fleet."""

    not_leasable: dict[str, list[Span]] = field(default_factory=lambda: defaultdict(list))
    """By proxy: when it certainly was not to be leased."""


class Count:
    """How many of the spans there are at each moment; a span that ends when another begins does not meet it."""

    def __init__(self, spans: Iterable[Span]) -> None:
        changes = sorted(
            change for span in spans if span.end > span.begin for change in ((span.begin, 1), (span.end, -1))
        )
        self._times = [time for time, _ in changes]
        self._counts = list(accumulate(step for _, step in changes))

    @property
    def most(self) -> int:
        return max(self._counts, default=0)

    def most_during(self, span: Span) -> int:
        first, last = bisect_right(self._times, span.begin), bisect_right(self._times, span.end)
        before = self._counts[first - 1] if first else 0
        return max([before, *self._counts[first:last]])


def over_grants(leases: Iterable[Told], limit: int) -> list[str]:
    """The instances of proxies that certainly had more leases at once than ``limit``."""
    certain: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for lease in leases:
        certain[lease.proxy, lease.address].append(Span(lease.granted, lease.certain_until))
    return [
        f"{proxy} at {address}: {most} leases at once, of {limit}"
        for (proxy, address), spans in certain.items()
        if (most := Count(spans).most) > limit
    ]


def false_refusals(refusals: Sequence[Span], leases: Iterable[Told], slots: int) -> list[Span]:
    """The refusals, each from question to answer, during all of which one of ``slots`` was certainly free.

    ``leases`` are all that were ever taken of these slots.
    """
    possible = Count(Span(lease.asked, lease.possible_until) for lease in leases)
    return [refusal for refusal in refusals if possible.most_during(refusal) < slots]


def granted_while_not_leasable(leases: Iterable[Told], unrest: Unrest) -> list[str]:
    """Leases that were asked for and granted while their proxy was cordoned, not Ready or on its way out."""
    return [
        f"{lease.lease_id} of {lease.proxy}"
        for lease in leases
        for span in unrest.not_leasable.get(lease.proxy, ())
        if span.begin < lease.asked and lease.granted < span.end
    ]

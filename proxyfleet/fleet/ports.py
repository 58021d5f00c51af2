"""What the fleet needs of the layers above it, which it may not import; `proxyfleet.composition` fills it in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from proxyfleet.fleet.spec import InvalidSpec, ProxySpec

if TYPE_CHECKING:
    from proxyfleet.fleet.models import Proxy


@dataclass(frozen=True, slots=True)
class LeasingNews:
    """Something that happened to a proxy by its lessees, for its history."""

    at: datetime
    what: str
    message: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class RestingFor:
    target: str
    until: datetime


@dataclass(frozen=True, slots=True)
class LeaseSummary:
    """What an operator wants to know of a lease that is out."""

    id: UUID
    owner: str
    client: str
    target: str
    created_at: datetime
    expires_at: datetime


class LeaseBook(Protocol):
    """The leases of the fleet. Every method joins the caller's transaction and writes only leasing tables."""

    def publish(self, proxy_id: int, *, leasable: bool, max_leases: int, generation: int) -> None:
        """From the commit on, the proxy is leased (or not), up to ``max_leases`` at a time.

        Called in every transaction that changes one of these, or the phase. ``generation`` is that of the spec, whose
        attributes decide what the proxy is leased for.
        """
        ...

    def active(self, proxy_id: int, now: datetime) -> int:
        """Leases that are out and have not expired."""
        ...

    def active_each(self, proxy_ids: Collection[int], now: datetime) -> Mapping[int, int]:
        """The same of many proxies in one query; one without leases may be missing."""
        ...

    def targets_cooling_each(self, proxy_ids: Collection[int], now: datetime) -> Mapping[int, int]:
        """For how many targets each of them rests; one that rests for none may be missing."""
        ...

    def outstanding(self, proxy_id: int, now: datetime, *, limit: int) -> Sequence[LeaseSummary]:
        """The active leases themselves, newest first."""
        ...

    def cooldowns(self, proxy_id: int, now: datetime, *, limit: int) -> Sequence[RestingFor]:
        """The targets that the proxy rests for, the longest first."""
        ...

    def lease_news(self, proxy: Proxy, *, since: datetime, before: datetime, limit: int) -> Sequence[LeasingNews]:
        """Leases taken and ended from ``since`` on, before ``before``, newest first."""
        ...

    def report_news(self, proxy: Proxy, *, since: datetime, before: datetime, limit: int) -> Sequence[LeasingNews]:
        """What lessees reported then, newest first."""
        ...

    def end_all(self, proxy_id: int, *, cause: str, now: datetime) -> int:
        """End all leases of the proxy, keeping ``cause``; comes after ``publish(leasable=False)``."""
        ...


class Prober(Protocol):
    """The health engine."""

    def probe_soon(self, proxy_ids: Iterable[int]) -> None:
        """Probe these once the transaction commits, without waiting for their slot. A hint: it may be lost."""
        ...


@dataclass(frozen=True, slots=True)
class LastProbe:
    at: datetime
    milliseconds: int
    """How long it took, whatever came of it."""
    outcome: str


@dataclass(frozen=True, slots=True)
class ProbeSlot:
    """The probes of a few minutes."""

    at: datetime
    good: int
    failed: int
    milliseconds: int | None
    """How long the last good one took."""


class ProbeMemory(Protocol):
    """What is remembered of probes for people to look at; empty whenever it was lost."""

    def last_each(self, uids: Collection[UUID]) -> Mapping[UUID, LastProbe]:
        """The last probe of each proxy; one that is not known is missing."""
        ...

    def last_day(self, uid: UUID, now: datetime) -> Sequence[ProbeSlot]:
        """The slots of the last 24 hours that had probes, in their order."""
        ...

    def last_check(self, entry: str) -> datetime | None:
        """When the backend of the provider entry was last checked."""
        ...


class FieldConflict(InvalidSpec):
    """Somebody else manages fields of the custom resource; ``errors`` says who, by the path of each field."""


class NotWritten(Exception):
    """The custom resource could not be changed; the message tells a person why."""


class Cluster(Protocol):
    """The custom resources of proxies of origin ``cluster``: what people change of them, they change there.

    Each call talks to the API server, for seconds if need be, so none belongs into a transaction. The row follows when
    the bridge has heard of it. All raise NotWritten.
    """

    def apply_spec(self, proxy: Proxy, wanted: ProxySpec) -> None:
        """Change what differs in the spec of ``proxy``, as it was when the row was read. Raises FieldConflict."""
        ...

    def set_skip_cleanup(self, proxy: Proxy) -> None:
        """As `operations.skip_cleanup`. Raises FieldConflict."""
        ...

    def delete(self, proxy: Proxy) -> None:
        """As `operations.request_deletion`."""
        ...


class _Ports:
    leases: LeaseBook
    prober: Prober
    probes: ProbeMemory
    cluster: Cluster


ports = _Ports()

"""The fleet in a few numbers, and what of it needs a person. As many queries for ten proxies as for ten thousand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.db import connection
from django.db.models import Case, Count, F, IntegerField, Q, Value, When, Window
from django.db.models.functions import RowNumber, TruncMinute

from providers.errors import Blocked
from proxyfleet.fleet.models import (
    ATTENTION_PHASES,
    ClusterMirror,
    EventKind,
    Origin,
    ProviderState,
    Proxy,
    ProxyEvent,
)
from proxyfleet.fleet.phases import Phase

UNHEALTHY_LONG = timedelta(minutes=15)
"""A proxy that has been Unhealthy for longer will hardly recover by itself."""

TERMINATING_LONG = timedelta(minutes=10)
"""Beyond its drain, a deletion that takes longer is stuck."""

SHOWN_OF_EACH = 5
"""Proxies of one trouble that are named; the rest is counted."""

WAITING_REASONS = (*(kind.__name__ for kind in Blocked.__subclasses__()), "CloudInitError", "ProviderNotConfigured")
"""Why a proxy waits for a person: its provider is blocked, or something that its spec refers to is missing."""


class Trouble(StrEnum):
    """What may be wrong with a proxy, the worst first."""

    FAILED = "Failed"
    STUCK = "Stuck in Terminating"
    UNHEALTHY = "Unhealthy"
    BLOCKED = "Blocked"


@dataclass(frozen=True, slots=True)
class Census:
    phases: Mapping[Phase, int]
    cordoned: int
    troubles: Mapping[Trouble, int]

    @property
    def total(self) -> int:
        return sum(self.phases.values())

    @property
    def wanted(self) -> int:
        """All but those on their way out."""
        return self.total - self.phases[Phase.TERMINATING]

    @property
    def ready(self) -> int:
        return self.phases[Phase.READY]


@dataclass(frozen=True, slots=True)
class TroubledProxy:
    trouble: Trouble
    proxy: Proxy


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """Proxies that targets take for one."""

    egress_ip: str
    count: int
    names: Sequence[str]
    """Some of them."""
    newest: int
    """The id of the Managed one that was made last; 0: all are External."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """What the database knows of the bridge to the cluster."""

    row: ClusterMirror | None
    unpublished: int
    """Proxies whose status in the cluster is not that of their row yet."""


def census(now: datetime) -> Census:
    troubles = _troubles(now)
    counts: dict[str, int] = Proxy.objects.aggregate(
        cordoned=Count("pk", filter=Q(cordoned=True)),
        **{phase.name: Count("pk", filter=Q(phase=phase)) for phase in Phase},
        **{f"trouble_{trouble.name}": Count("pk", filter=condition) for trouble, condition in troubles.items()},
    )
    return Census(
        phases={phase: counts[phase.name] for phase in Phase},
        cordoned=counts["cordoned"],
        troubles={trouble: counts[f"trouble_{trouble.name}"] for trouble in troubles},
    )


def troubled(now: datetime) -> list[TroubledProxy]:
    """Up to SHOWN_OF_EACH proxies of each trouble: the worst trouble first, and of each the oldest."""
    troubles = _troubles(now)
    kind = Case(
        *(When(condition, then=Value(place)) for place, condition in enumerate(troubles.values())),
        output_field=IntegerField(),
    )
    found = (
        Proxy.objects.defer("cloud_init_inline")
        # Says again what every condition implies, in the words of the index.
        .filter(phase__in=ATTENTION_PHASES)
        .annotate(kind=kind)
        .filter(kind__isnull=False)
        .annotate(place=Window(RowNumber(), partition_by=F("kind"), order_by=[F("phase_changed_at"), F("pk")]))
        .filter(place__lte=SHOWN_OF_EACH)
        .order_by("kind", "place")
    )
    names = list(troubles)
    return [TroubledProxy(names[proxy.kind], proxy) for proxy in found]


_SHARED = """
with seen as (
  select id, namespace, name, mode, created_at, egress_ip from fleet_proxy
  where egress_ip is not null and probed_serial = instance_serial and deletion_requested_at is null
)
select host(egress_ip), count(*),
  (array_agg(namespace || '/' || name order by created_at, id))[1:%(shown)s],
  coalesce((array_agg(id order by created_at desc, id desc) filter (where mode = 'Managed'))[1], 0)
from seen where egress_ip in (select egress_ip from seen group by egress_ip having count(*) > 1)
group by egress_ip
order by count(*) desc, egress_ip limit %(shown)s
"""


def shared_addresses() -> list[SharedAddress]:
    """Egress addresses that several proxies have, those of most proxies first; SHOWN_OF_EACH at most."""
    with connection.cursor() as cursor:
        cursor.execute(_SHARED, {"shown": SHOWN_OF_EACH})
        return [SharedAddress(*row) for row in cursor.fetchall()]


def checked_providers(configured: Sequence[str]) -> list[ProviderState]:
    """A state for each configured entry, in their order; of one that was never checked, an empty one."""
    states = {state.entry: state for state in ProviderState.objects.filter(entry__in=configured).defer("orphans")}
    return [states.get(entry) or ProviderState(entry=entry) for entry in configured]


def phase_changes_by_minute(since: datetime, until: datetime) -> Mapping[datetime, int]:
    """Minutes from ``since`` to before ``until`` in which any proxy changed its phase."""
    changes = ProxyEvent.objects.filter(kind=EventKind.PHASE_CHANGED, at__gte=since, at__lt=until).order_by()
    return dict(changes.annotate(minute=TruncMinute("at")).values_list("minute").annotate(Count("pk")))


def mirror() -> Mirror:
    waiting = Proxy.objects.filter(origin=Origin.CLUSTER, revision__gt=F("published_revision"))
    return Mirror(ClusterMirror.objects.first(), waiting.count())


def _troubles(now: datetime) -> dict[Trouble, Q]:
    """No proxy has two of them."""
    drained_before = now - TERMINATING_LONG
    return {
        Trouble.FAILED: Q(phase=Phase.FAILED),
        Trouble.STUCK: Q(phase=Phase.TERMINATING)
        & Q(deletion_requested_at__lt=drained_before - F("drain_seconds") * timedelta(seconds=1)),
        Trouble.UNHEALTHY: Q(phase=Phase.UNHEALTHY, phase_changed_at__lt=now - UNHEALTHY_LONG),
        Trouble.BLOCKED: Q(phase__in=(Phase.PENDING, Phase.PROVISIONING), reason__in=WAITING_REASONS),
    }

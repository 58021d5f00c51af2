"""Probes that somebody asks for before their slot: of a proxy that became reachable, or that a client reported.

A row says that the proxy waits for one, so that a thousand reports of one proxy are one probe, or two if they go on
while it runs. Once taken up, the row names the turn; it goes when the result is known, and is taken up anew when that
turn has died.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from proxyfleet.fleet import hints
from proxyfleet.fleet.backends import lane_of, providers
from proxyfleet.fleet.models import PromptProbe, Proxy
from proxyfleet.fleet.queues import queue_of

_ASK = """
    INSERT INTO fleet_promptprobe (proxy_id, turn)
    SELECT id, NULL FROM fleet_proxy WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE
    ON CONFLICT (proxy_id) DO UPDATE SET turn = NULL WHERE fleet_promptprobe.turn IS NOT NULL
    RETURNING proxy_id
"""


class CeleryProber:
    """``proxyfleet.fleet.ports.Prober``: the run that has the turn at the entry takes it up, or one that is woken."""

    def probe_soon(self, proxy_ids: Iterable[int]) -> None:
        ids = list(proxy_ids)
        transaction.on_commit(lambda: _wake(ask(ids)))


def ask(proxy_ids: Sequence[int]) -> list[int]:
    """Note that these want a probe; returns those that did not wait for one already."""
    with connection.cursor() as cursor:
        cursor.execute(_ASK, [list(proxy_ids)])
        return [pk for (pk,) in cursor.fetchall()]


def asked_for(token: UUID | None) -> Q:
    """Proxies that wait for a probe, but for those that the turn ``token`` has taken up."""
    waiting = Q(promptprobe__isnull=False)
    return waiting if token is None else waiting & (Q(promptprobe__turn=None) | ~Q(promptprobe__turn=token))


def answered(proxy_ids: Collection[int], token: UUID) -> None:
    """These were probed by the turn ``token``. Who asked again meanwhile still waits."""
    PromptProbe.objects.filter(proxy__in=proxy_ids, turn=token).delete()


def _wake(proxy_ids: Collection[int]) -> None:
    configured = frozenset(providers().names())
    lanes = Proxy.objects.filter(pk__in=proxy_ids).values_list("lane", flat=True).distinct()
    for lane in {lane_of(lane, configured) for lane in lanes} if proxy_ids else ():
        hints.send("health.probe_due", queue=queue_of(lane), entry=lane)

"""The way out: what is new about rows is shown on their Proxy objects, told as Events, and objects whose row has gone
are released.

What is new is found by ``revision > published_revision``, which a lost hint or a crash can't falsify. Now and then
every object is compared with its row, for a status can be overwritten, or be that of a backup. Nothing is sent when an
object shows its row already. An Event is told at least once, and under the same name each time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from django.db.models import F, QuerySet

from k8s_sync.client import ApiServer, Object
from k8s_sync.deliveries import Deliveries
from k8s_sync.errors import AlreadyExists, Conflict, NotFound, Refused
from k8s_sync.events import KNOWN_TO_THE_CLUSTER, event_object
from k8s_sync.finalizers import is_being_deleted, is_held, release
from k8s_sync.kinds import EVENT, PROXY
from k8s_sync.status import shows, status_of
from k8s_sync.store import ObjectStore, uid_of
from proxyfleet.fleet.models import Origin, Proxy, ProxyEvent
from proxyfleet.fleet.ports import ports

logger = logging.getLogger(__name__)

BATCH = 200
"""Rows that are read at a time."""
PARALLEL = 4
"""Calls to the API server at a time."""
LAST_EVENTS = 5
"""Events that are told, perhaps again, when a row has gone and taken the mark of the last one told with it."""
RECHECK_SECONDS = 300.0
"""How often every object is compared with its row."""
REFUSED_REST_SECONDS = 10.0
"""How long a proxy rests after the API server refused a write for it: the same would be refused again."""


class Publisher:
    """Use from one thread."""

    def __init__(
        self,
        api: ApiServer,
        objects: ObjectStore,
        mirrored: Deliveries,
        *,
        remarks: Callable[[str], Mapping[str, Any]],
        namespace: str | None,
        identity: str,
    ) -> None:
        """``mirrored`` says which objects the rows do not show yet, ``remarks`` what to say of an object over what its
        row does, by the uid. ``namespace`` is the only one that is mirrored. ``identity`` names this process in
        Events.
        """
        self._api = api
        self._objects = objects
        self._mirrored = mirrored
        self._remarks = remarks
        self._rows = Proxy.objects.filter(origin=Origin.CLUSTER, **({"namespace": namespace} if namespace else {}))
        self._identity = identity[:128]
        self._recheck_at = time.monotonic()
        self._rests_until: dict[str, float] = {}
        """By uid and monotonic clock."""

    def publish(self, pool: ThreadPoolExecutor, now: datetime) -> None:
        """One round over all that is new. Raises ClusterError when the rest has to wait."""
        self._rests_until = {uid: until for uid, until in self._rests_until.items() if until > time.monotonic()}
        for rows in self._rows_to_show():
            events = _untold(rows)
            told = pool.map(self._tell, rows, self._statuses(rows, now), [events[row.pk] for row in rows])
            for row, is_told in zip(rows, told, strict=True):
                if is_told and row.published_revision < row.revision:
                    # A row whose object this store has missed, asleep, is not to be taken for one without.
                    self._api.check_write()
                    _mark_published(row, events[row.pk])
        for obj in self._releasable():
            self._release(obj)

    def _rows_to_show(self) -> Iterator[Sequence[Proxy]]:
        """Those with news or, when it is time, all."""
        recheck = time.monotonic() >= self._recheck_at
        wanted = self._rows if recheck else self._rows.filter(revision__gt=F("published_revision"))
        after = 0
        while rows := list(wanted.filter(pk__gt=after).order_by("pk").defer("cloud_init_inline")[:BATCH]):
            yield [row for row in rows if str(row.uid) not in self._rests_until]
            after = rows[-1].pk
        if recheck:
            self._recheck_at = time.monotonic() + RECHECK_SECONDS

    def _statuses(self, rows: Sequence[Proxy], now: datetime) -> Iterator[dict[str, Any]]:
        ids = [row.pk for row in rows]
        leases, cooling = ports.leases.active_each(ids, now), ports.leases.targets_cooling_each(ids, now)
        for row in rows:
            counts = {"leases": leases.get(row.pk, 0), "targets_cooling": cooling.get(row.pk, 0)}
            yield {**status_of(row, **counts), **self._remarks(str(row.uid))}

    def _tell(self, row: Proxy, wanted: dict[str, Any], events: Sequence[ProxyEvent]) -> bool:
        """Show the row on its object, if there is one; False when that has to be tried again."""
        obj = self._objects.get(str(row.uid))
        if obj is None:
            return not self._mirrored.owes(str(row.uid))
        try:
            if not shows(obj.get("status", {}), wanted):
                self._patch_status(obj, wanted)
            self._tell_events(obj, events)
        except Conflict:
            return False  # the store is behind; by the next round it has caught up
        except NotFound:
            return True
        except Refused as error:
            self._rest(obj, error)
            return False
        return True

    def _patch_status(self, obj: Object, wanted: Object) -> None:
        metadata = obj["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": wanted}
        self._api.patch_status(PROXY, patch, name=metadata["name"], namespace=metadata["namespace"])

    def _tell_events(self, obj: Object, events: Sequence[ProxyEvent]) -> None:
        for event in events:
            try:
                self._api.create(EVENT, event_object(event, obj, instance=self._identity))
            except AlreadyExists:
                pass  # told before a crash
            except Refused as error:
                # Nothing is made in a namespace that is being deleted; that must not keep its proxies from going.
                logger.info("%s/%s: an Event was not taken: %s", event.namespace, event.name, error)

    def _releasable(self) -> Iterator[Object]:
        """Objects on their way out whose row has gone, and with it the instance."""
        leaving = {
            uid_of(obj): obj
            for obj in self._objects.all()
            # Asked before the rows are read: what is still owed may yet make one.
            if is_being_deleted(obj) and is_held(obj) and not self._mirrored.owes(uid_of(obj))
        }
        if not leaving:
            return
        rows = Proxy.objects.filter(origin=Origin.CLUSTER, uid__in=leaving)
        kept = {str(uid) for uid in rows.values_list("uid", flat=True)}
        yield from (obj for uid, obj in leaving.items() if uid not in kept and uid not in self._rests_until)

    def _release(self, obj: Object) -> None:
        metadata = obj["metadata"]
        last = _told_to_the_cluster().filter(proxy_uid=metadata["uid"]).order_by("-pk")[:LAST_EVENTS]
        try:
            self._tell_events(obj, list(reversed(last)))
            self._api.json_patch(PROXY, release(obj), name=metadata["name"], namespace=metadata["namespace"])
        except (Conflict, NotFound):
            pass  # it has changed or gone since: the store will say so
        except Refused as error:
            self._rest(obj, error)

    def _rest(self, obj: Object, error: Refused) -> None:
        metadata = obj["metadata"]
        logger.warning("%s/%s can't be published: %s", metadata["namespace"], metadata["name"], error)
        self._rests_until[uid_of(obj)] = time.monotonic() + REFUSED_REST_SECONDS


def _told_to_the_cluster() -> QuerySet[ProxyEvent]:
    return ProxyEvent.objects.exclude(kind__in=KNOWN_TO_THE_CLUSTER)


def _untold(rows: Sequence[Proxy]) -> Mapping[int, Sequence[ProxyEvent]]:
    """The events of each row that the cluster has not been told of, oldest first."""
    events: dict[int, list[ProxyEvent]] = {row.pk: [] for row in rows}
    for event in _told_to_the_cluster().filter(proxy__in=rows, pk__gt=F("proxy__published_event")).order_by("pk"):
        assert event.proxy_id is not None, "it was joined with its proxy"
        events[event.proxy_id].append(event)
    return events


def _mark_published(row: Proxy, events: Sequence[ProxyEvent]) -> None:
    last = events[-1].pk if events else row.published_event
    Proxy.objects.filter(pk=row.pk, published_revision__lt=row.revision).update(
        published_revision=row.revision, published_event=last
    )

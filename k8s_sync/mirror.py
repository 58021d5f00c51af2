"""Proxy objects become rows: each object's newest version is applied until its row agrees, and then writes nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from k8s_sync import finalizers
from k8s_sync.client import ApiServer, Object
from k8s_sync.errors import Conflict, NotFound, Refused
from k8s_sync.kinds import PROXY
from k8s_sync.resources import Declaration, refused_status
from k8s_sync.status import shows, status_of
from k8s_sync.store import uid_of
from proxyfleet.fleet import operations
from proxyfleet.fleet.columns import holds_spec
from proxyfleet.fleet.models import ClusterMirror, Origin, Proxy
from proxyfleet.fleet.operations import NameTaken, NotAllowed
from proxyfleet.fleet.spec import InvalidSpec, ProxySpec

logger = logging.getLogger(__name__)

ACTOR = "kubernetes"
"""Stands in the history where a person's name would: who changed the object, the cluster knows."""

UNPROCESSABLE = 422
"""How the API server answers a JSON Patch whose test fails."""


class Mirror:
    """The rows of origin ``cluster``. ``deliver`` is called by one thread, the rest by any."""

    def __init__(self, api: ApiServer, *, namespace: str | None) -> None:
        """``namespace`` is the only one that is mirrored; None: all are."""
        self._api = api
        self._namespace = namespace
        self._lock = threading.Lock()
        self._remarks: dict[str, dict[str, Any]] = {}
        self._waiting: dict[str, tuple[str, str]] = {}
        """By the uid of an object that another row is in the way of: its namespace and name."""

    def known(self) -> Iterable[str]:
        """The uids of rows whose object should exist."""
        rows = Proxy.objects.filter(origin=Origin.CLUSTER, deletion_requested_at=None)
        if self._namespace is not None:
            rows = rows.filter(namespace=self._namespace)
        return [str(uid) for uid in rows.values_list("uid", flat=True)]

    def remarks(self, uid: str) -> Mapping[str, Any]:
        """What the status of this proxy says over what its row does: that its newest spec was refused."""
        with self._lock:
            return self._remarks.get(uid, {})

    def ready(self) -> Iterable[str]:
        """The uids of objects that nothing is in the way of any more: to be delivered again."""
        with self._lock:
            waiting = dict(self._waiting)
        if not waiting:
            return []
        namespaces, names = zip(*waiting.values(), strict=True)
        rows = Proxy.objects.filter(namespace__in=namespaces, name__in=names)
        uids = {str(uid) for uid in rows.values_list("uid", flat=True)}
        taken = set(rows.filter(deletion_requested_at=None).values_list("namespace", "name"))
        return [uid for uid, name in waiting.items() if uid not in uids and name not in taken]

    def deliver(self, uid: str, obj: Object | None, now: datetime) -> None:
        """Make the row of ``uid`` agree with its object; None: there is none.

        Raises ClusterError and django.db.Error: it can be repeated at will.
        """
        with self._lock:
            self._waiting.pop(uid, None)
        if obj is None:
            self._remember(uid, {})
            self._end(uid, now)
        elif finalizers.is_being_deleted(obj):
            self._delete(uid, obj, now)
        else:
            self._apply(uid, obj, now)

    def _end(self, uid: str, now: datetime) -> None:
        row = Proxy.objects.filter(uid=uid, origin=Origin.CLUSTER, deletion_requested_at=None).first()
        # The row may be younger than what we know of the cluster. Never take an instance down by mistake.
        if row is not None and not self._exists(row):
            operations.request_deletion(row.pk, actor=ACTOR, now=now, origin=Origin.CLUSTER)

    def _exists(self, row: Proxy) -> bool:
        try:
            return uid_of(self._api.get(PROXY, namespace=row.namespace, name=row.name)) == str(row.uid)
        except NotFound:
            return False

    def _delete(self, uid: str, obj: Object, now: datetime) -> None:
        row = Proxy.objects.filter(uid=uid, origin=Origin.CLUSTER).first()
        if row is not None:
            self._take_annotations(row, obj, now)
            operations.request_deletion(row.pk, actor=ACTOR, now=now, origin=Origin.CLUSTER)

    def _apply(self, uid: str, obj: Object, now: datetime) -> None:
        declared = Declaration.read(obj)
        if declared.is_managed and not finalizers.is_held(obj):
            # Before there can be an instance, so that nobody can delete the object without it.
            held = self._hold(obj)
            if held is None:
                return
            obj = held
            declared = Declaration.read(obj)
        row = Proxy.objects.filter(uid=uid).first()
        try:
            if row is None:
                self._declare(declared, now)
            elif row.origin != Origin.CLUSTER:
                raise _left(row)
            else:
                self._take_annotations(row, obj, now)
                self._update(row, declared, now)
                _check_shown(row, obj)
        except NameTaken as error:
            self._refuse(obj, None, error, now)
        except InvalidSpec as error:
            self._refuse(obj, row, error, now)
        else:
            self._remember(uid, {})

    def _hold(self, obj: Object) -> Object | None:
        """The object with our finalizer; None when it has changed meanwhile: its next version is on its way."""
        metadata = obj["metadata"]
        try:
            return self._api.json_patch(
                PROXY, finalizers.hold(obj), namespace=metadata["namespace"], name=metadata["name"]
            )
        except (NotFound, Conflict):
            return None
        except Refused as error:
            if error.status != UNPROCESSABLE:
                raise
            logger.info("%s/%s could not be held: %s", metadata["namespace"], metadata["name"], error)
            return None

    def _declare(self, declared: Declaration, now: datetime) -> None:
        # The name's last owner was deleted while nobody looked: its object is gone, for another one has the name.
        for row in Proxy.objects.filter(
            origin=Origin.CLUSTER, namespace=declared.namespace, name=declared.name, deletion_requested_at=None
        ):
            operations.request_deletion(row.pk, actor=ACTOR, now=now, origin=Origin.CLUSTER)
        operations.declare(
            declared.namespace,
            declared.name,
            declared.spec,
            actor=ACTOR,
            now=now,
            origin=Origin.CLUSTER,
            uid=declared.uid,
            generation=declared.generation,
        )

    def _update(self, row: Proxy, declared: Declaration, now: datetime) -> None:
        is_older = declared.generation <= row.generation
        if row.deletion_requested_at is None and is_older:
            if declared.generation == row.generation and holds_spec(row, ProxySpec.parse(declared.spec)):
                return
            if not self._is_newest(declared):
                return
            logger.warning(
                "%s has the generation %d in the cluster and had %d: the cluster was restored, and is followed",
                *(row, declared.generation, row.generation),
            )
        try:
            operations.update(
                row.pk,
                declared.spec,
                actor=ACTOR,
                now=now,
                origin=Origin.CLUSTER,
                generation=declared.generation,
                restored_from=row.generation if is_older else None,
            )
        except (NotAllowed, Proxy.DoesNotExist):
            logger.info("%s is on its way out; its object is declared anew when it is gone", row)
            self._wait(declared.uid, row.namespace, row.name)

    def _is_newest(self, declared: Declaration) -> bool:
        """Ask the API server itself: what was delivered may be late, as to a bridge that leads no more."""
        try:
            found = Declaration.read(self._api.get(PROXY, namespace=declared.namespace, name=declared.name))
        except NotFound:
            return False
        return found == declared

    def _take_annotations(self, row: Proxy, obj: Object, now: datetime) -> None:
        is_skipped = finalizers.skips_cleanup(obj)
        if is_skipped != row.skip_cleanup:
            follow = operations.skip_cleanup if is_skipped else operations.keep_cleanup
            follow(row.pk, actor=ACTOR, now=now, origin=Origin.CLUSTER)

    def _refuse(self, obj: Object, row: Proxy | None, error: InvalidSpec, now: datetime) -> None:
        """Say on the object why its spec is not followed, unless it says so already."""
        metadata = obj["metadata"]
        if row is None:
            reason = "InvalidSpec"
            if isinstance(error, NameTaken):
                reason = "NameTaken"
                self._wait(metadata["uid"], metadata["namespace"], metadata["name"])
            wanted = refused_status(obj, reason, str(error), now)
        else:
            generations = f"generation {metadata['generation']} is refused, generation {row.generation} stays"
            wanted = {"message": f"{generations}: {error}"}
            self._remember(str(row.uid), wanted)
        shown = obj.get("status", {})
        if any(shown.get(field) != value for field, value in wanted.items()):
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": wanted}
            try:
                self._api.patch_status(PROXY, patch, namespace=metadata["namespace"], name=metadata["name"])
            except (NotFound, Conflict):
                logger.info("%s/%s has changed meanwhile", metadata["namespace"], metadata["name"])

    def _wait(self, uid: UUID | str, namespace: str, name: str) -> None:
        with self._lock:
            self._waiting[str(uid)] = (namespace, name)

    def _remember(self, uid: str, remarks: dict[str, Any]) -> None:
        with self._lock:
            if remarks:
                self._remarks[uid] = remarks
            else:
                self._remarks.pop(uid, None)


def _left(row: Proxy) -> NameTaken:
    return NameTaken(
        {"name": [f"the proxy {row} was taken over by `manage.py leave_cluster`: delete it there, or this object"]}
    )


def _check_shown(row: Proxy, obj: Object) -> None:
    """Have the row shown anew when its object does not show it, though it did: somebody else wrote the status, or it
    came from a backup. An object that is merely older than the row costs a look by the publisher, and no write to it.
    """
    wanted = status_of(row, leases=0, targets_cooling=0)
    del wanted["leases"], wanted["targetsCooling"]
    if row.published_revision == row.revision and not shows(obj.get("status", {}), wanted):
        Proxy.objects.filter(pk=row.pk, revision=row.revision, published_revision=row.revision).update(
            published_revision=row.revision - 1
        )


def heartbeat(now: datetime, *, namespace: str | None, leader: str, complete: bool) -> None:
    """``leader`` leads at this moment. When ``complete``, the rows show all of the cluster's Proxy objects: the orphan
    GC relies on it.
    """
    shown: dict[str, Any] = {"complete_at": now, "namespace": namespace or ""} if complete else {}
    ClusterMirror.objects.update_or_create(defaults={"leader": leader, "led_at": now, **shown})

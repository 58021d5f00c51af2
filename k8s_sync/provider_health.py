"""One ProviderHealth object for each configured provider entry; those of entries that were dropped go.

Each carries its fleet's id. What carries another is left alone; what carries none, under the name of an entry, is made
anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from k8s_sync.client import ApiServer, Object
from k8s_sync.errors import AlreadyExists, Conflict, NotFound
from k8s_sync.kinds import FLEET_LABEL, PROVIDER_HEALTH
from k8s_sync.status import shows, time_text
from k8s_sync.store import ObjectStore, uid_of
from proxyfleet.fleet.models import ProviderState

logger = logging.getLogger(__name__)


class ProviderHealths:
    """Use from one thread."""

    def __init__(self, api: ApiServer, objects: ObjectStore, types: Mapping[str, str], *, fleet_id: str) -> None:
        """``types`` has the type of each configured entry."""
        self._api = api
        self._objects = objects
        self._types = types
        self._fleet_id = fleet_id
        self._taken: dict[str, str] = {}
        """The entries whose name is taken by an object of another fleet, and of which."""

    def publish(self) -> None:
        """One round; sends only what differs. Raises ClusterError when the rest has to wait."""
        objects = {obj["metadata"]["name"]: obj for obj in self._objects.all()}
        fleets = {name: obj["metadata"].get("labels", {}).get(FLEET_LABEL, "") for name, obj in objects.items()}
        self._report({name: fleets[name] for name in self._types if fleets.get(name, "") not in ("", self._fleet_id)})
        shown = {name: obj for name, obj in objects.items() if fleets[name] == self._fleet_id}
        states = ProviderState.objects.in_bulk(list(self._types))
        for entry, type_ in self._types.items():
            if entry in self._taken:
                continue
            if entry in objects and entry not in shown:
                self._delete(objects[entry])  # nobody's
            try:
                self._show(shown.get(entry), entry, type_, states.get(entry))
            except (AlreadyExists, Conflict, NotFound):
                continue  # the store is behind
        for entry in shown.keys() - self._types.keys():
            self._delete(shown[entry])

    def _show(self, obj: Object | None, entry: str, type_: str, state: ProviderState | None) -> None:
        if obj is not None and obj["spec"] != {"type": type_}:
            self._delete(obj)  # another provider took the name
            obj = None
        if obj is None:
            metadata = {"name": entry, "labels": {FLEET_LABEL: self._fleet_id}}
            obj = self._api.create(PROVIDER_HEALTH, {"metadata": metadata, "spec": {"type": type_}})
        wanted = _status_of(state)
        if not shows(obj.get("status", {}), wanted):
            patch = {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}, "status": wanted}
            self._api.patch_status(PROVIDER_HEALTH, patch, name=entry)

    def _report(self, taken: dict[str, str]) -> None:
        for entry, fleet in taken.items() - self._taken.items():
            logger.warning(
                "The ProviderHealth %s is that of the fleet %s, so the entry of that name of %s is not shown in the "
                "cluster. Give it another name, or delete the object if there is no such fleet any more.",
                *(entry, fleet, self._fleet_id),
            )
        self._taken = taken

    def _delete(self, obj: Object) -> None:
        with suppress(Conflict, NotFound):
            self._api.delete(PROVIDER_HEALTH, name=obj["metadata"]["name"], uid=uid_of(obj))


def _status_of(state: ProviderState | None) -> dict[str, Any]:
    """As `status.status_of`; nothing is said of a provider that was not checked yet."""
    if state is None or state.check_ready is None:
        return {"conditions": None, "targets": None}
    ready = {
        "type": "Ready",
        "status": "True" if state.check_ready else "False",
        "reason": state.check_reason,
        "message": state.check_message,
        "lastTransitionTime": time_text(state.check_changed_at),
    }
    return {"conditions": [ready], "targets": state.check_targets}

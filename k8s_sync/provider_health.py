"""One ProviderHealth object for each configured provider entry; those of entries that were dropped go."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from k8s_sync.client import ApiServer, Object
from k8s_sync.errors import AlreadyExists, Conflict, NotFound
from k8s_sync.kinds import PROVIDER_HEALTH
from k8s_sync.status import shows, time_text
from k8s_sync.store import ObjectStore, uid_of
from proxyfleet.fleet.models import ProviderState


class ProviderHealths:
    """Use from one thread."""

    def __init__(self, api: ApiServer, objects: ObjectStore, types: Mapping[str, str]) -> None:
        """``types`` has the type of each configured entry."""
        self._api = api
        self._objects = objects
        self._types = types

    def publish(self) -> None:
        """One round; sends only what differs. Raises ClusterError when the rest has to wait."""
        shown = {obj["metadata"]["name"]: obj for obj in self._objects.all()}
        states = ProviderState.objects.in_bulk(list(self._types))
        for entry, type_ in self._types.items():
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
            obj = self._api.create(PROVIDER_HEALTH, {"metadata": {"name": entry}, "spec": {"type": type_}})
        wanted = _status_of(state)
        if not shows(obj.get("status", {}), wanted):
            patch = {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}, "status": wanted}
            self._api.patch_status(PROVIDER_HEALTH, patch, name=entry)

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

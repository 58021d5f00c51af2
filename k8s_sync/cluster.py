"""Changes that people make to a proxy of the cluster, written to its custom resource: the row follows by the mirror.

Fields are applied under a manager of their own and never by force. A field that somebody else manages, kubectl or a
GitOps tool, stays theirs: were it taken from them, they would take it back at their next turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from k8s_sync.client import ApiServer, Object, connect
from k8s_sync.errors import ClusterError, Conflict, NotFound
from k8s_sync.finalizers import SKIP_CLEANUP
from k8s_sync.kinds import PROXY
from k8s_sync.ownership import Path, leaves, owned, owners, tree_of
from k8s_sync.store import uid_of
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.ports import FieldConflict, NotWritten
from proxyfleet.fleet.spec import ProxySpec

FIELD_MANAGER = "proxyfleet-admin"
TRIES = 5
"""The object changes under our hands whenever its status does."""

_ABSENT = object()
_MANAGER = re.compile(r'conflict with "([^"]+)"')


class KubernetesCluster:
    """Implements `ports.Cluster`."""

    def apply_spec(self, proxy: Proxy, wanted: ProxySpec) -> None:
        after = leaves(wanted.declared(), ("spec",))

        def intent(obj: Object) -> dict[Path, Any]:
            generation = obj["metadata"]["generation"]
            if generation != proxy.generation:
                raise NotWritten(
                    f"{proxy} has generation {generation} in the cluster and {proxy.generation} here: somebody has "
                    "just changed it there, or its newest spec is refused. Open the form again to see it as it is."
                )
            before = leaves(ProxySpec.parse(obj["spec"]).declared(), ("spec",))
            removed = before.keys() - after.keys()
            _check_removable(obj, removed)
            kept = {path: value for path, value in owned(obj, FIELD_MANAGER).items() if path not in removed}
            return kept | {path: value for path, value in after.items() if before.get(path, _ABSENT) != value}

        _apply(proxy, intent)

    def set_skip_cleanup(self, proxy: Proxy) -> None:
        _apply(proxy, lambda obj: owned(obj, FIELD_MANAGER) | {("metadata", "annotations", SKIP_CLEANUP): "true"})

    def delete(self, proxy: Proxy) -> None:
        with _told_to_a_person(proxy):
            _api().delete(PROXY, namespace=proxy.namespace, name=proxy.name, uid=str(proxy.uid))


@cache
def _api() -> ApiServer:
    return connect()


def _apply(proxy: Proxy, intent: Callable[[Object], Mapping[Path, Any]]) -> None:
    """Apply the fields that ``intent`` wants of the object, all that are to stay ours among them."""
    with _told_to_a_person(proxy):
        for _ in range(TRIES):
            obj = _api().get(PROXY, namespace=proxy.namespace, name=proxy.name)
            if uid_of(obj) != str(proxy.uid):
                raise NotFound("another object has its name")
            identity = {key: obj["metadata"][key] for key in ("namespace", "name", "uid", "resourceVersion")}
            manifest = tree_of(intent(obj))
            manifest["metadata"] = manifest.get("metadata", {}) | identity
            try:
                _api().apply(PROXY, manifest, field_manager=FIELD_MANAGER)
            except Conflict as error:
                if error.causes:
                    raise FieldConflict(_by_field(error)) from error
            else:
                return
    raise NotWritten(f"{proxy} keeps changing in the cluster. Try again.")


def _check_removable(obj: Object, removed: Iterable[Path]) -> None:
    """What others own as well stays when we let go of it, and no error would say so."""
    others = {path: owners(obj, path) - {FIELD_MANAGER} for path in removed}
    if conflicts := {".".join(path[1:]): [_managed_by(names)] for path, names in others.items() if names}:
        raise FieldConflict(conflicts)


def _by_field(conflict: Conflict) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    for cause in conflict.causes:
        path = cause["field"].removeprefix(".").removeprefix("spec.")
        found = _MANAGER.search(cause["message"])
        errors.setdefault(path, []).append(_managed_by({found[1]}) if found else cause["message"])
    return errors


def _managed_by(managers: Iterable[str]) -> str:
    return f"is managed by {', '.join(sorted(managers))}, which would set it back: change it there"


@contextmanager
def _told_to_a_person(proxy: Proxy) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise NotWritten(f"{proxy} is no longer in the cluster.") from error
    except ClusterError as error:
        raise NotWritten(f"{proxy} could not be changed in the cluster: {error}.") from error

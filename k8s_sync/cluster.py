"""Changes that people make to a proxy of the cluster, written to its custom resource: the row follows by the mirror.

Fields are applied under a manager of their own. One that somebody else manages, kubectl or a GitOps tool, stays theirs:
were it taken from them, they would take it back at their next turn. Force is used only for defaults that the API server
filled in, which it counts as written by whoever made the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from k8s_sync.client import ApiServer, Object, connect
from k8s_sync.errors import ClusterError, Conflict, NotFound
from k8s_sync.finalizers import SKIP_CLEANUP
from k8s_sync.kinds import PROXY
from k8s_sync.ownership import Path, leaves, owned, owners, tree_of
from k8s_sync.store import uid_of
from proxyfleet.conf import settings
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.operations import OwnedByTheCluster
from proxyfleet.fleet.ports import FieldConflict, NotWritten
from proxyfleet.fleet.spec import ProxySpec

FIELD_MANAGER = "proxyfleet-admin"
TRIES = 5
"""The object changes under our hands whenever its status does."""

REMOVED = object()
"""Stands for the value of a field that is to go."""

Change = Mapping[Path, Any]
"""The new value of each field that changes."""


class KubernetesCluster:
    """Implements `ports.Cluster`."""

    def apply_spec(self, proxy: Proxy, wanted: ProxySpec) -> None:
        after = leaves(wanted.declared(), ("spec",))

        def change(obj: Object) -> Change:
            generation = obj["metadata"]["generation"]
            if generation != proxy.generation:
                raise NotWritten(
                    f"{proxy} has generation {generation} in the cluster and {proxy.generation} here: somebody has "
                    "just changed it there, or its newest spec is refused. Open the form again to see it as it is."
                )
            before = leaves(ProxySpec.parse(obj["spec"]).declared(), ("spec",))
            return {path: value for path, value in after.items() if before.get(path, REMOVED) != value} | dict.fromkeys(
                before.keys() - after.keys(), REMOVED
            )

        _write(proxy, change)

    def set_skip_cleanup(self, proxy: Proxy) -> None:
        _write(proxy, lambda _obj: {("metadata", "annotations", SKIP_CLEANUP): "true"})

    def delete(self, proxy: Proxy) -> None:
        with _told_to_a_person(proxy):
            _api().delete(PROXY, namespace=proxy.namespace, name=proxy.name, uid=str(proxy.uid))


@cache
def _api() -> ApiServer:
    return connect()


def _write(proxy: Proxy, change: Callable[[Object], Change]) -> None:
    """Apply what ``change`` wants of the object as it is, beside all that the admin manages already."""
    with _told_to_a_person(proxy):
        for _ in range(TRIES):
            obj = _api().get(PROXY, namespace=proxy.namespace, name=proxy.name)
            if uid_of(obj) != str(proxy.uid):
                raise NotFound("another object has its name")
            changed = change(obj)
            _check_ownership(obj, changed)
            fields = {**owned(obj, FIELD_MANAGER), **changed}
            manifest = tree_of({path: value for path, value in fields.items() if value is not REMOVED})
            # With its version, whose owners were checked just now, nothing but this very object is written.
            identity = {key: obj["metadata"][key] for key in ("namespace", "name", "uid", "resourceVersion")}
            manifest["metadata"] = manifest.get("metadata", {}) | identity
            with suppress(Conflict):
                _api().apply(PROXY, manifest, field_manager=FIELD_MANAGER, force=True)
                return
    raise NotWritten(f"{proxy} keeps changing in the cluster. Try again.")


def _check_ownership(obj: Object, changed: Change) -> None:
    defaults = leaves(ProxySpec.model_construct().declared(), ("spec",))
    owners_of = owners(obj, defaults)
    conflicts: dict[str, list[str]] = {}
    for path in changed:
        if others := owners_of.get(path, set()) - {FIELD_MANAGER}:
            message = f"is managed by {', '.join(sorted(others))}: change it there"
            conflicts[".".join(path).removeprefix("spec.")] = [message]
    if conflicts:
        raise FieldConflict(conflicts)


@contextmanager
def _told_to_a_person(proxy: Proxy) -> Iterator[None]:
    if not settings().cluster_sync:
        raise NotWritten(f"{OwnedByTheCluster(proxy)}.")
    try:
        yield
    except NotFound as error:
        raise NotWritten(f"{proxy} is no longer in the cluster.") from error
    except ClusterError as error:
        raise NotWritten(f"{proxy} could not be changed in the cluster: {error}.") from error

"""A namespace for one test, and its end: also where no controller manager empties it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests

from proxyfleet.local.processes import wait_until
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError

SECONDS = 60
DISCOVERY = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}


@contextmanager
def new_namespace(cluster: Cluster) -> Iterator[str]:
    """Its name. At the end nothing of it is left, whatever finalizers its objects have.

    Raises ClusterError when it isn't ready, or not gone, within a minute.
    """
    name = f"test-{secrets.token_hex(4)}"
    with cluster.session() as api:
        _ask(api, "POST", f"{cluster.url}/api/v1/namespaces", json={"metadata": {"name": name}})
        here = f"{cluster.url}/api/v1/namespaces/{name}"
        if cluster.controllers and not wait_until(lambda: _exists(api, f"{here}/serviceaccounts/default"), SECONDS):
            raise ClusterError(f"The namespace {name} got no ServiceAccount: does the controller manager run?")
        try:
            yield name
        finally:
            _ask(api, "DELETE", here)
            if not wait_until(lambda: _is_gone(api, cluster, name), SECONDS):
                raise ClusterError(f"The namespace {name} is still there: {api.get(here).text}")


def _is_gone(api: requests.Session, cluster: Cluster, name: str) -> bool:
    """Do what is left to do for its end. Does nothing remain?"""
    here = f"{cluster.url}/api/v1/namespaces/{name}"
    if not _exists(api, here):
        return True
    for collection in _collections(api, cluster.url, name):
        if not cluster.controllers:
            _ask(api, "DELETE", collection)
        for left in _ask(api, "GET", collection)["items"]:
            if left["metadata"].get("finalizers"):
                own = f"{collection}/{left['metadata']['name']}"
                _ask(api, "PATCH", own, json={"metadata": {"finalizers": None}}, headers=MERGE_PATCH)
    if not cluster.controllers:
        _ask(api, "PUT", f"{here}/finalize", json={"metadata": {"name": name}, "spec": {"finalizers": []}})
    return not _exists(api, here)


def _collections(api: requests.Session, server: str, namespace: str) -> Iterator[str]:
    """The URL of each collection that ``namespace`` can hold."""
    for root in ("api", "apis"):
        for group in _ask(api, "GET", f"{server}/{root}", headers=DISCOVERY)["items"]:
            path = "/".join(filter(None, [root, group["metadata"].get("name"), group["versions"][0]["version"]]))
            for resource in group["versions"][0]["resources"]:
                if resource["scope"] == "Namespaced" and "deletecollection" in resource["verbs"]:
                    yield f"{server}/{path}/namespaces/{namespace}/{resource['resource']}"


def _exists(api: requests.Session, url: str) -> bool:
    return api.get(url).ok


def _ask(api: requests.Session, method: str, url: str, **arguments: Any) -> dict[str, Any]:
    """The answer, or nothing when there is no such thing any more. Raises ClusterError at any other refusal."""
    answer = api.request(method, url, **arguments)
    if not answer.ok and answer.status_code != requests.codes.not_found:
        raise ClusterError(f"{method} {url}: {answer.status_code} {answer.text}")
    found: dict[str, Any] = answer.json() if answer.ok else {"items": []}
    return found

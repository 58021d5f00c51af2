"""The finalizer that keeps a Proxy object until its instance is gone, and the annotation that lets go of it. Pure.

Patches are JSON Patch and test what they build on, so that none acts on an object other than the one that was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FINALIZER = "crawl.example.com/cleanup"
SKIP_CLEANUP = "crawl.example.com/skip-cleanup"
"""Annotation; ``"true"`` abandons the instance and releases the object."""

Object = Mapping[str, Any]
Patch = list[dict[str, Any]]


def is_held(proxy: Object) -> bool:
    return FINALIZER in proxy["metadata"].get("finalizers", ())


def is_being_deleted(proxy: Object) -> bool:
    return "deletionTimestamp" in proxy["metadata"]


def skips_cleanup(proxy: Object) -> bool:
    return bool(proxy["metadata"].get("annotations", {}).get(SKIP_CLEANUP) == "true")


def hold(proxy: Object) -> Patch:
    """Add the finalizer. Refused by the API server when the object has changed since."""
    metadata = proxy["metadata"]
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
    return [
        unchanged,
        {"op": "add", "path": "/metadata/finalizers", "value": [*metadata.get("finalizers", ()), FINALIZER]},
    ]


def release(proxy: Object) -> Patch:
    """Take the finalizer away. Refused by the API server when another object has the name, or the list has changed."""
    metadata = proxy["metadata"]
    place = f"/metadata/finalizers/{metadata['finalizers'].index(FINALIZER)}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": place, "value": FINALIZER},
        {"op": "remove", "path": place},
    ]

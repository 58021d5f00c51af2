"""The newest known version of each object of one kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from k8s_sync.client import Object


def uid_of(obj: Object) -> str:
    uid: str = obj["metadata"]["uid"]
    return uid


def version_of(obj: Object) -> int:
    """The resourceVersion, which is a decimal number that grows with each change of any object of the kind."""
    return int(obj["metadata"]["resourceVersion"])


class ObjectStore:
    """Written by one reflector, read by any thread. What is handed out must not be changed."""

    def __init__(self, key: Callable[[Object], str] = uid_of) -> None:
        """By ``key`` an object is known. With the uid, one deleted and made again under the same name is another."""
        self.key = key
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> Object | None:
        with self._lock:
            return self._objects.get(key)

    def all(self) -> Sequence[Object]:
        with self._lock:
            return list(self._objects.values())

    def keys(self) -> Sequence[str]:
        with self._lock:
            return list(self._objects)

    def put(self, obj: Object) -> None:
        with self._lock:
            self._objects[self.key(obj)] = obj

    def remove(self, key: str) -> None:
        with self._lock:
            self._objects.pop(key, None)

    def replace(self, objects: Iterable[Object]) -> None:
        """Hold exactly ``objects``."""
        fresh = {self.key(obj): obj for obj in objects}
        with self._lock:
            self._objects = fresh

"""Who owns which field of an object, by its ``managedFields``. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation: what client-side ``kubectl apply`` and its like were given."""

Path = tuple[str, ...]
"""The keys that lead to a field from the root of the object. A list counts as one field."""


def owned(obj: Mapping[str, Any], manager: str) -> dict[Path, Any]:
    """The fields that ``manager`` has applied, with their values of now."""
    fields: dict[Path, Any] = {}
    for entry in obj["metadata"].get("managedFields", ()):
        if entry["manager"] == manager and entry["operation"] == "Apply" and not entry.get("subresource"):
            fields |= {path: value for path in _paths(entry["fieldsV1"]) for value in _value(obj, path)}
    return fields


def owners(obj: Mapping[str, Any], defaults: Mapping[Path, Any]) -> dict[Path, set[str]]:
    """The managers of each field.

    Whoever does not apply fields but writes the whole object is said to own all of it, with what the API server filled
    in. A field that has its value in ``defaults``, and that kubectl's note of what was applied does not name, is not
    theirs: they never wrote it.
    """
    noted = leaves(json.loads(obj["metadata"].get("annotations", {}).get(LAST_APPLIED, "{}")))
    found: dict[Path, set[str]] = {}
    for entry in obj["metadata"].get("managedFields", ()):
        for path in _paths(entry.get("fieldsV1", {})):
            filled_in = path in defaults and path not in noted and [*_value(obj, path)] == [defaults[path]]
            if entry["operation"] == "Apply" or not filled_in:
                found.setdefault(path, set()).add(entry["manager"])
    return found


def leaves(tree: Mapping[str, Any], above: Path = ()) -> dict[Path, Any]:
    """Every field in ``tree`` that is no map itself."""
    found: dict[Path, Any] = {}
    for key, value in tree.items():
        found |= leaves(value, (*above, key)) if isinstance(value, Mapping) else {(*above, key): value}
    return found


def tree_of(fields: Mapping[Path, Any]) -> dict[str, Any]:
    """The other way round."""
    tree: dict[str, Any] = {}
    for (*parents, last), value in fields.items():
        part = tree
        for key in parents:
            part = part.setdefault(key, {})
        part[last] = value
    return tree


def _paths(fields: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    """The fields in a ``fieldsV1``: a key ``f:name`` leads on, ``.`` stands for the part itself."""
    for key, below in fields.items():
        if key.startswith("f:"):
            path = (*above, key.removeprefix("f:"))
            if set(below) <= {"."}:
                yield path
            yield from _paths(below, path)


def _value(obj: Mapping[str, Any], path: Path) -> Iterator[Any]:
    """The value at ``path``, if there is one."""
    value: Any = obj
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return
        value = value[key]
    yield value

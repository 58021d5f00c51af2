"""What tells one spec from another, for the history. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

UNTOLD = frozenset({"cloudInit.inline"})
"""Long, and no business of whoever may read the history."""

NOTHING = "(none)"


def describe_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Each field that differs with its old and new value: ``maxLeases 10 → 3; attributes.geo eu → us``."""
    old, new = dict(_fields(before)), dict(_fields(after))
    differing = [field for field in {**old, **new} if old.get(field) != new.get(field)]
    return "; ".join(
        f"{field} changed" if field in UNTOLD else f"{field} {_shown(old.get(field))} → {_shown(new.get(field))}"
        for field in differing
    )


def _fields(declared: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in declared.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _shown(value: Any) -> str:
    if value in (None, "", []):
        return NOTHING
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

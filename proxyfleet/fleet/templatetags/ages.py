"""How long ago, as kubectl would say it: by the largest unit alone, and to the second while that matters."""

from __future__ import annotations

from datetime import datetime

from django import template

register = template.Library()

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@register.filter
def age(moment: datetime, now: datetime) -> str:
    """The time between the two, whichever comes first: ``12 s``, ``5 min``, ``3 h``, ``40 d``."""
    seconds = int(abs((now - moment).total_seconds()))
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size or size == 1)
    return f"{seconds // size} {unit}"

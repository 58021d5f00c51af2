"""How long the work on a provider entry may take, sized by how its driver behaves. Pure."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TypedDict

from providers.base import BehaviourProfile

TURN = timedelta(seconds=20)
"""A task begins nothing more after this long, and leaves the rest to a fresh message."""

MARGIN = timedelta(seconds=30)
"""What is added to the provider's own deadlines: they should end a call, the limits only what went wrong."""


def step_limit(profile: BehaviourProfile) -> timedelta:
    """A step looks at the instance, then creates one, or lists all to delete what an interrupted create left."""
    call = timedelta(seconds=profile.call_deadline_seconds)
    create = timedelta(seconds=profile.create_deadline_seconds)
    return call + max(create, 3 * call) + MARGIN


class TimeLimits(TypedDict, total=False):
    """Celery's options, in seconds."""

    soft_time_limit: int
    time_limit: int


def task_limits(profile: BehaviourProfile) -> TimeLimits:
    """Celery's options for a task that works on an entry: its turn, and the step that was begun just before its end."""
    soft = TURN + step_limit(profile)
    return {"soft_time_limit": ceil(soft.total_seconds()), "time_limit": ceil((soft + MARGIN).total_seconds())}


def check_limits(timeout: float) -> TimeLimits:
    """Celery's options for the check of an entry, which gives up by itself after ``timeout`` seconds."""
    soft = timedelta(seconds=timeout) + MARGIN
    return {"soft_time_limit": ceil(soft.total_seconds()), "time_limit": ceil((soft + MARGIN).total_seconds())}

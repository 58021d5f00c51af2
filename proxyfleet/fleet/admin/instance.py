"""The instance of a proxy as its provider reports it now.

A backend may be slow or silent, and whoever looks at a page must not keep a web process from the others: the call has
a thread that is given up after a few seconds, and an entry is asked by a few at a time only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import BoundedSemaphore, Thread

from providers.errors import InstanceNotFound, ProviderError
from providers.instances import Instance
from providers.registry import UnknownProvider, entry_of
from proxyfleet.fleet.backends import providers

logger = logging.getLogger(__name__)

WAIT_SECONDS = 8.0
AT_ONCE = 4
"""Questions of this process, to all backends, that have no answer yet."""

_free = BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True, slots=True)
class Report:
    instance: Instance | None = None
    problem: str = ""


def ask(provider_id: str, *, wait: float = WAIT_SECONDS) -> Report:
    """What the provider says of the instance, or why it says nothing."""
    entry = entry_of(provider_id)
    try:
        provider = providers().get(entry)
    except UnknownProvider:
        return Report(problem=f"{entry} is not in the providers file.")
    except ProviderError as error:
        return Report(problem=f"{entry} can't be asked from here ({error.reason}): {error}")
    if not _free.acquire(blocking=False):
        return Report(problem="Too many questions to providers have no answer yet. Try again.")
    answers: list[Report] = []
    # A daemon: one that hangs for good must not keep the process from its end.
    thread = Thread(
        target=_answer,
        args=(lambda: provider.get(provider_id), entry, answers),
        name=f"instance of {entry}",
        daemon=True,
    )
    thread.start()
    thread.join(wait)
    return answers[0] if answers else Report(problem=f"{entry} has not answered within {wait:g} s.")


def _answer(get: Callable[[], Instance], entry: str, answers: list[Report]) -> None:
    try:
        answers.append(Report(get()))
    except InstanceNotFound:
        answers.append(Report(problem="There is no such instance any more."))
    except ProviderError as error:
        answers.append(Report(problem=f"{entry} can't be asked now ({error.reason}): {error}"))
    except Exception:
        logger.exception("%s failed in a way that its driver does not know", entry)
        answers.append(Report(problem=f"Asking {entry} failed; the log says how."))
    finally:
        _free.release()

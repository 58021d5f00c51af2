"""What an API server's answer can mean to the caller. Messages hold what the server said, and never a credential."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


class ClusterError(Exception):
    """A call to the API server failed."""


class Unreachable(ClusterError):
    """No answer, half an answer, or one that says that the server is in trouble: the same call may work later."""


class Gone(ClusterError):
    """410: what was asked for, a resourceVersion or a page, is no longer kept. List again."""


class NotFound(ClusterError):
    """404: there is no such object."""


class AlreadyExists(ClusterError):
    """409 to a create."""


class Conflict(ClusterError):
    """409: the object was changed meanwhile or, with server-side apply, others own the fields."""

    def __init__(self, message: str, causes: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(causes)
        """Of an apply: for each field ``field``, its path, and ``message``, which names its manager."""


class Refused(ClusterError):
    """Any other 4xx: invalid, forbidden, unauthenticated. The server's message says why."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def error_of(code: int, status: Mapping[str, Any]) -> ClusterError:
    """What a ``Status`` object means; ``code`` is that of HTTP, or of an ERROR event."""
    message = f"the API server answered {code}: {status.get('message') or status.get('reason') or 'no reason given'}"
    match code:
        # One that names no object says that the kind is not served, be it for a moment: nothing of its objects.
        case 404 if (status.get("details") or {}).get("name"):
            return NotFound(message)
        case 404:
            return Unreachable(message)
        case 409 if status.get("reason") == "AlreadyExists":
            return AlreadyExists(message)
        case 409:
            return Conflict(message, (status.get("details") or {}).get("causes") or ())
        case 410:
            return Gone(message)
        # Asked too much, or a proxy's opinion of the server: not ours of the request.
        case 408 | 429:
            return Unreachable(message)
        case _ if 400 <= code < 500:
            return Refused(message, code)
        case _:
            return Unreachable(message)


def status_in(body: bytes) -> Mapping[str, Any]:
    """The ``Status`` object in an answer; what is none, as a load balancer's page, says nothing."""
    try:
        status = json.loads(body)
    except ValueError:
        return {}
    return status if isinstance(status, dict) else {}

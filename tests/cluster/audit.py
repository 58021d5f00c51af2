"""Who wrote what: the API server's audit log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
# Asks what one may do: a POST that writes nothing.
- {level: None, resources: [{group: authorization.k8s.io}]}
- {level: Metadata, verbs: [create, update, patch, delete, deletecollection]}
"""


@dataclass(frozen=True, slots=True)
class Write:
    """One request that asked for a change, whether or not it was granted."""

    at: datetime
    """When it came in."""
    user: str
    verb: str
    resource: str
    """Like ``proxies`` or ``proxies/status``."""
    namespace: str
    name: str
    code: int
    """The HTTP status that answered it."""

    @classmethod
    def of(cls, event: dict[str, Any]) -> Self:
        """Read an audit.k8s.io/v1 Event."""
        target = event.get("objectRef", {})
        return cls(
            at=datetime.fromisoformat(event["requestReceivedTimestamp"]),
            user=event["user"]["username"],
            verb=event["verb"],
            resource="/".join(filter(None, [target.get("resource", ""), target.get("subresource", "")])),
            namespace=target.get("namespace", ""),
            name=target.get("name", ""),
            code=event.get("responseStatus", {}).get("code", 0),
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """The log is written when a request is answered: an entry may come a moment after its answer."""

    log: Path

    def mark(self) -> int:
        """Now, for ``writes(since=...)``."""
        return self.log.stat().st_size

    def writes(
        self,
        since: int = 0,
        *,
        user: str | None = None,
        verb: str | None = None,
        resource: str | None = None,
        namespace: str | None = None,
    ) -> list[Write]:
        """The writes after the mark ``since`` that match all that is given, in the order of their answers."""
        wanted = {"user": user, "verb": verb, "resource": resource, "namespace": namespace}
        asked = {name: value for name, value in wanted.items() if value is not None}
        found = map(Write.of, self._events(since))
        return [write for write in found if all(getattr(write, name) == value for name, value in asked.items())]

    def _events(self, since: int) -> list[dict[str, Any]]:
        with self.log.open("rb") as file:
            file.seek(since)
            complete, _, _ = file.read().rpartition(b"\n")
        return [json.loads(line) for line in complete.splitlines()]

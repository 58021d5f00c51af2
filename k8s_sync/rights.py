"""What this account must be allowed, and whether it still is.

Streams that are open go on after a right was taken away, and writes wait for something to write: without asking, nobody
would hear of it for minutes or days. The answers are computed, by whatever authorizes in this cluster; asking writes
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from k8s_sync.client import ApiServer
from k8s_sync.errors import NotFound, Refused
from k8s_sync.kinds import ACCESS_REVIEW, EVENT, LEASE, PROVIDER_HEALTH, PROXY, SECRET, Kind
from k8s_sync.leader import LEASE_NAME

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Right:
    verb: str
    kind: Kind
    subresource: str = ""
    namespace: str | None = None
    """None: in all of them, or the kind has none."""
    name: str = ""
    """Empty: of whatever name."""

    def __str__(self) -> str:
        resource = "/".join(filter(None, (self.kind.plural, self.subresource)))
        where = f" in the namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{where}"

    def attributes(self) -> dict[str, str]:
        """As a review takes them."""
        asked = {
            "group": self.kind.group,
            "resource": self.kind.plural,
            "subresource": self.subresource,
            "verb": self.verb,
            "namespace": self.namespace or "",
            "name": self.name,
        }
        return {key: value for key, value in asked.items() if value}


def needed(*, namespace: str | None, lease_namespace: str) -> Sequence[Right]:
    """All that deploy/rbac/sync.yaml grants, but for reading the cluster's identity, which can be done without.

    ``namespace`` is the only one that is mirrored; None: all are.
    """
    return (
        *(Right(verb, PROXY, namespace=namespace) for verb in ("get", "list", "watch", "patch")),
        Right("patch", PROXY, "status", namespace),
        *(Right(verb, SECRET, namespace=namespace) for verb in ("list", "watch")),
        Right("create", EVENT, namespace=namespace),
        *(Right(verb, PROVIDER_HEALTH) for verb in ("list", "watch", "create", "delete")),
        Right("patch", PROVIDER_HEALTH, "status"),
        Right("create", LEASE, namespace=lease_namespace),
        *(Right(verb, LEASE, namespace=lease_namespace, name=LEASE_NAME) for verb in ("get", "update")),
    )


class Rights:
    """``look`` in one thread; ``problem`` from any."""

    def __init__(self, api: ApiServer, rights: Sequence[Right]) -> None:
        """``api`` must let a process ask that does not lead."""
        self._api = api
        self._rights = rights
        self._problem = ""

    def problem(self) -> str:
        """What this account lacked when it last looked; empty: nothing, or it can't be told."""
        return self._problem

    def look(self) -> None:
        """Raises Unreachable; what was known before then stays."""
        try:
            lacking = [right for right in self._rights if not self._has(right)]
        except (NotFound, Refused) as error:
            logger.debug("What this account may do can't be told: %s", error)
            lacking = []
        problem = f"this account may not {', '.join(map(str, lacking))}" if lacking else ""
        if problem and problem != self._problem:
            logger.warning("Rights are missing: %s", problem)
        elif self._problem and not problem:
            logger.info("This account may do all that it must again")
        self._problem = problem

    def _has(self, right: Right) -> bool:
        manifest: dict[str, Any] = {"metadata": {}, "spec": {"resourceAttributes": right.attributes()}}
        return bool(self._api.create(ACCESS_REVIEW, manifest)["status"].get("allowed"))

"""One bridge leads: it holds a Lease and renews it. The others wait until that stays the same for its whole duration.

No two clocks are compared: how long a Lease has stayed the same is measured by each candidate's own monotonic clock.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime
from typing import Any

from k8s_sync.client import CALL_SECONDS, CONNECT_SECONDS, ApiServer
from k8s_sync.errors import AlreadyExists, ClusterError, Conflict, NotFound
from k8s_sync.kinds import FLEET_LABEL, LEASE

logger = logging.getLogger(__name__)

LEASE_NAME = "proxyfleet-sync"
LEASE_SECONDS = 15
"""A Lease that was not renewed for so long is anyone's."""
GIVE_UP_SECONDS = 10
"""A leader that could not renew for so long leads no more."""
RETRY_SECONDS = 2.0
"""How often the leader renews, and a candidate looks."""
WRITE_SECONDS = LEASE_SECONDS - CONNECT_SECONDS - CALL_SECONDS
"""So long after a renewal was asked for, a call may begin: even the slowest ends before another may lead."""


class NotLeading(ClusterError):
    """This process does not lead, or can't be sure to lead until the end of a call: nothing is written."""


class OfAnotherFleet(ClusterError):
    """Another installation keeps its Lease here: this one would wait for ever."""


class Leader:
    """This process as a candidate. One thread calls `campaign` and `resign`; any may ask whether it leads."""

    def __init__(self, api: ApiServer, *, namespace: str, identity: str, fleet_id: str) -> None:
        """``identity`` tells this process from every other, earlier ones on the same machine included."""
        self.identity = identity
        self._fleet_id = fleet_id
        self._api = api
        self._namespace = namespace
        self._renewed_at: float | None = None
        self._seen_version = ""
        self._seen_at = 0.0

    def leads(self) -> bool:
        return self._renewed_within(GIVE_UP_SECONDS)

    def check_write(self) -> None:
        """Raises NotLeading unless a write that begins now ends while nobody else leads."""
        if not self._renewed_within(WRITE_SECONDS):
            raise NotLeading("this bridge does not lead, or could not renew its Lease lately")

    def campaign(self, now: datetime) -> None:
        """Renew the Lease, or take it if it is nobody's.

        Raises OfAnotherFleet, and ClusterError when the API server can't be asked.
        """
        asked_at = time.monotonic()
        try:
            lease = self._api.get(LEASE, name=LEASE_NAME, namespace=self._namespace)
        except NotFound:
            lease = self._new_lease()
        spec = lease["spec"]
        ours = spec.get("holderIdentity") == self.identity
        if not ours:
            self._renewed_at = None
            if not self._is_free(lease, asked_at):
                self._check_fleet(lease)
                return
            transitions = spec.get("leaseTransitions", 0) + 1
            spec |= {"holderIdentity": self.identity, "acquireTime": _micro_time(now), "leaseTransitions": transitions}
        spec |= {"renewTime": _micro_time(now), "leaseDurationSeconds": LEASE_SECONDS}
        lease["metadata"]["labels"] = lease["metadata"].get("labels", {}) | {FLEET_LABEL: self._fleet_id}
        try:
            self._put(lease)
        except (Conflict, AlreadyExists):
            return  # another was quicker; the next round reads what it wrote
        self._renewed_at = asked_at
        if not ours:
            logger.info("%s leads", self.identity)

    def resign(self, now: datetime) -> None:
        """Leave the Lease to the others, who then need not wait for its end. Raises ClusterError."""
        if self._renewed_at is None:
            return
        self._renewed_at = None
        lease = self._api.get(LEASE, name=LEASE_NAME, namespace=self._namespace)
        if lease["spec"].get("holderIdentity") == self.identity:
            # The API server takes no duration of 0.
            lease["spec"] |= {"holderIdentity": "", "renewTime": _micro_time(now), "leaseDurationSeconds": 1}
            self._put(lease)

    def _renewed_within(self, seconds: float) -> bool:
        renewed_at = self._renewed_at
        return renewed_at is not None and time.monotonic() < renewed_at + seconds

    def _is_free(self, lease: dict[str, Any], asked_at: float) -> bool:
        version = lease["metadata"].get("resourceVersion", "")
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, time.monotonic()
        if not lease["spec"].get("holderIdentity"):
            return True
        duration: int = lease["spec"].get("leaseDurationSeconds", LEASE_SECONDS)
        return asked_at >= self._seen_at + duration

    def _check_fleet(self, lease: dict[str, Any]) -> None:
        fleet = lease["metadata"].get("labels", {}).get(FLEET_LABEL, self._fleet_id)
        if fleet != self._fleet_id:
            raise OfAnotherFleet(
                f"the Lease {self._namespace}/{LEASE_NAME} is held by the fleet {fleet}, and this one is "
                f"{self._fleet_id}: give each a namespace of its own by PROXYFLEET_LEASE_NAMESPACE"
            )

    def _new_lease(self) -> dict[str, Any]:
        return {"metadata": {"name": LEASE_NAME, "namespace": self._namespace}, "spec": {"leaseTransitions": -1}}

    def _put(self, lease: dict[str, Any]) -> None:
        """Raises Conflict or AlreadyExists when somebody else has written it since it was read."""
        if "resourceVersion" in lease["metadata"]:
            self._api.replace(LEASE, lease)
        else:
            self._api.create(LEASE, lease)


def _micro_time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

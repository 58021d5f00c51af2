"""Compute Engine over the wire: four calls and a look at an operation, each within a deadline, errors translated.

Importing the SDK takes a second or two: nothing but the driver imports this module.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import google.auth
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import Conflict, GoogleAPICallError, NotFound
from google.cloud import compute_v1

from providers.errors import AuthenticationFailed, Unavailable
from providers.gcp.refusals import RAISED, reason_of, told_by, translate

T = TypeVar("T")

REQUEST_SECONDS = 10.0
"""Longest wait for one answer."""

ATTEMPTS = 3
"""How often google-auth sends a request that is answered 401, with a fresh token each time."""

SCOPE = "https://www.googleapis.com/auth/compute"

for _name in ("google.auth.transport.requests", "google.cloud.compute_v1.services.instances.transports.rest"):
    # At DEBUG they log whole requests: cloud-init is in the body.
    logging.getLogger(_name).addFilter(lambda record: record.levelno > logging.DEBUG)


class Deadline:
    """How long a verb of the driver may still take."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def share(self) -> float:
        """Seconds that one attempt may take, so that all of them end in time. Raises Unavailable once it is over."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise Unavailable("Compute Engine did not answer in time")
        return min(REQUEST_SECONDS, left / ATTEMPTS)


@dataclass(frozen=True, slots=True)
class _Clients:
    instances: compute_v1.InstancesClient
    operations: compute_v1.ZoneOperationsClient
    process: int
    """Connections are not shared with the process that this one was forked from."""


class Compute:
    """The part of Compute Engine's API that the driver uses. Safe to share between threads, and to fork with.

    Credentials are the Application Default ones, looked up at the first call and again after they were refused; in
    between google-auth renews tokens by itself. ``endpoint`` replaces the public one.
    """

    def __init__(self, *, endpoint: str | None = None) -> None:
        self._endpoint = endpoint
        self._clients: _Clients | None = None

    def insert(
        self, project: str, zone: str, body: dict[str, Any], request_id: UUID, deadline: Deadline
    ) -> compute_v1.Operation | None:
        """The operation that makes the instance, or made it when the request is repeated; None: the name is taken."""
        request = compute_v1.InsertInstanceRequest(
            project=project, zone=zone, instance_resource=compute_v1.Instance(body), request_id=str(request_id)
        )
        return self._call(
            lambda clients, seconds: clients.instances.insert_unary(request, retry=None, timeout=seconds),
            deadline,
            absent_when=lambda error: isinstance(error, Conflict) and reason_of(error) == "alreadyExists",
        )

    def find(self, project: str, zone: str, name: str, deadline: Deadline) -> compute_v1.Instance | None:
        """The instance of this name, or None when there is none."""
        request = compute_v1.GetInstanceRequest(project=project, zone=zone, instance=name)
        return self._call(
            lambda clients, seconds: clients.instances.get(request, retry=None, timeout=seconds),
            deadline,
            absent_when=lambda error: _is_missing(error, "instances"),
        )

    def delete(self, project: str, zone: str, number: int, deadline: Deadline) -> None:
        """Ask for the end of the instance of this number, whatever bears its name by now."""
        request = compute_v1.DeleteInstanceRequest(project=project, zone=zone, instance=str(number))
        self._call(
            lambda clients, seconds: clients.instances.delete_unary(request, retry=None, timeout=seconds),
            deadline,
            absent_when=lambda error: _is_missing(error, "instances"),
        )

    def page(
        self, project: str, expression: str, deadline: Deadline, *, token: str = "", most: int = 500
    ) -> compute_v1.InstanceAggregatedList:
        """One page of the instances of all zones that match a filter, and the zones that did not answer."""
        request = compute_v1.AggregatedListInstancesRequest(
            project=project, filter=expression, page_token=token, max_results=most, include_all_scopes=True
        )
        page = self._call(
            # Never more than the first: the pager would fetch the others without a deadline, and drop what it is told
            # about zones that did not answer.
            lambda clients, seconds: next(
                iter(clients.instances.aggregated_list(request, retry=None, timeout=seconds).pages)
            ),
            deadline,
        )
        assert page is not None
        return page

    def operation(self, project: str, zone: str, name: str, deadline: Deadline) -> compute_v1.Operation | None:
        """How an operation stands; None when its record has expired."""
        request = compute_v1.GetZoneOperationRequest(project=project, zone=zone, operation=name)
        return self._call(
            lambda clients, seconds: clients.operations.get(request, retry=None, timeout=seconds),
            deadline,
            absent_when=lambda error: _is_missing(error, "operations"),
        )

    def _call(
        self,
        call: Callable[[_Clients, float], T],
        deadline: Deadline,
        *,
        absent_when: Callable[[GoogleAPICallError], bool] = lambda _: False,
    ) -> T | None:
        try:
            return call(self._connected(), deadline.share())
        except RAISED as error:
            if isinstance(error, GoogleAPICallError) and absent_when(error):
                return None
            refusal = translate(error)
        if isinstance(refusal, AuthenticationFailed):
            self._clients = None
        # Out here, so that the SDK's error is not its context: it may quote what the instance was to be made from.
        raise refusal

    def _connected(self) -> _Clients:
        clients = self._clients
        if clients is None or clients.process != os.getpid():
            credentials, _ = google.auth.default(default_scopes=[SCOPE])
            options = ClientOptions(api_endpoint=self._endpoint)
            clients = self._clients = _Clients(
                instances=compute_v1.InstancesClient(credentials=credentials, client_options=options),
                operations=compute_v1.ZoneOperationsClient(credentials=credentials, client_options=options),
                process=os.getpid(),
            )
        return clients


def _is_missing(error: GoogleAPICallError, collection: str) -> bool:
    """Is it the thing itself that is not found? A project or zone that is not says nothing of what is in it."""
    return isinstance(error, NotFound) and f"/{collection}/" in told_by(error)

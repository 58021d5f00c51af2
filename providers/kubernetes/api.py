"""The few calls of the API server that the driver needs: JSON in, JSON out, each within a deadline.

The official client brings access (kubeconfig, accounts, rotating tokens, TLS). Its generated calls are left aside: they
hide an answer's ``Status`` and take what any web server answers for a pod.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlencode

import urllib3

from providers.errors import AuthenticationFailed, ProviderError, Unavailable
from providers.kubernetes.access import Access, open_access
from providers.kubernetes.answers import error_of
from providers.tracing import backend_call

Object = dict[str, Any]
"""An object of the cluster, as JSON has it."""

PAGE_SIZE = 500
ACCESS_SECONDS = 60
"""How long credentials are used before they are read again; those that are refused are read again at once."""


class PodApi:
    """The pods of a cluster. Safe to share between threads, and across a fork.

    All methods take ``until``, in terms of ``time.monotonic()``, and raise Unavailable when it has come.
    """

    def __init__(self, kubeconfig_file: Path | None) -> None:
        self._kubeconfig_file = kubeconfig_file
        self._lock = Lock()
        self._access: Access | None = None
        self._opened = (0, 0.0)

    def default_namespace(self) -> str:
        """Of the account or context in use. Raises Misconfigured."""
        return self._current().namespace

    def create(self, pod: Object, *, until: float, dry_run: bool = False) -> Object:
        """Raises Conflict when the name is taken. A dry run goes through admission and quota, and makes nothing."""
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self._call("POST", _pods(pod["metadata"]["namespace"]), query=query, body=pod, until=until)

    def get(self, namespace: str, name: str, *, until: float) -> Object:
        """Raises InstanceNotFound."""
        return self._call("GET", _pods(namespace, name), until=until)

    def delete(self, namespace: str, name: str, *, uid: str, grace_seconds: int, until: float) -> None:
        """Raises InstanceNotFound, and Unavailable when the name has gone over to a pod of another uid."""
        body = {"preconditions": {"uid": uid}, "gracePeriodSeconds": grace_seconds}
        self._call("DELETE", _pods(namespace, name), body=body, until=until)

    def list(
        self, namespace: str, *, labels: Mapping[str, str], until: float, limit: int | None = None
    ) -> list[Object]:
        """All pods that carry ``labels``, page by page; the first ``limit`` only, if given."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
        query["limit"] = str(limit or PAGE_SIZE)
        pods: list[Object] = []
        while True:
            page = self._call("GET", _pods(namespace), query=query, until=until)
            pods += page["items"]
            query["continue"] = page["metadata"].get("continue", "")
            if limit or not query["continue"]:
                return pods

    def may(self, verb: str, namespace: str, *, until: float) -> bool:
        """Whether our account may do this to pods of ``namespace``."""
        attributes = {"namespace": namespace, "verb": verb, "resource": "pods"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = self._call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review, until=until)
        return bool(answer["status"]["allowed"])

    def _call(
        self,
        method: str,
        path: str,
        *,
        until: float,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
    ) -> Object:
        left = until - time.monotonic()
        if left <= 0:
            raise Unavailable("the API server took too long")
        client = self._current().client
        headers = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "proxyfleet"}
        with backend_call(f"kubernetes {method}", path=path), _translated():
            # Asks the account's or the kubeconfig's token anew: both rotate.
            client.update_params_for_auth(headers, [], ["BearerToken"])
            response = client.rest_client.pool_manager.request(
                method,
                f"{client.configuration.host}{path}?{urlencode({k: v for k, v in (query or {}).items() if v})}",
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=urllib3.Timeout(total=left),
            )
            if 200 <= response.status < 300:
                answer: Object = json.loads(response.data)
                return answer
        error = error_of(response.status, _status_in(response.data), retry_after=_retry_after(response.headers))
        if isinstance(error, AuthenticationFailed):
            self._opened = (0, 0.0)
        raise error

    def _current(self) -> Access:
        """A connection is not shared with a process that was forked, and credentials are not kept for long."""
        with self._lock:
            pid, since = self._opened
            if self._access is None or pid != os.getpid() or time.monotonic() - since > ACCESS_SECONDS:
                self._access = open_access(self._kubeconfig_file)
                self._opened = (os.getpid(), time.monotonic())
            return self._access


def _pods(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


def _status_in(body: bytes) -> Mapping[str, Any]:
    try:
        status = json.loads(body)
    except ValueError:
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of the libraries below as ours."""
    try:
        yield
    except ProviderError:
        raise
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable("the API server can't be reached", detail=f"{type(error).__name__}: {error}") from error
    except ValueError as error:
        raise Unavailable("what answered is not an API server", detail=str(error)) from error

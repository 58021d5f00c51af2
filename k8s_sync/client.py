"""The only module that talks to the API server. JSON in, JSON out; every call ends within a deadline.

The official client brings access (kubeconfig, ServiceAccount, rotating tokens, TLS). Its generated calls and its Watch
are not used: they hide the bookmarks, the resourceVersion and half of the errors that resuming a watch depends on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from opentelemetry.trace import SpanKind

from k8s_sync.errors import Unreachable, error_of, status_in
from k8s_sync.kinds import LEASE, Kind
from proxyfleet.observability import tracing

Object = dict[str, Any]
"""An object of the cluster, as JSON has it."""

CONNECT_SECONDS = 5.0
CALL_SECONDS = 5.0
"""For one call, but a list: how long the server may say nothing."""
LIST_SECONDS = 30.0
PAGE_SIZE = 500

WATCH_SECONDS = 240
"""The server ends a watch after this long, so that connections move to where servers are."""
SILENCE_SECONDS = 150.0
"""A watch that hears nothing for this long is dead; bookmarks come about once a minute."""


@dataclass(frozen=True, slots=True)
class Listing:
    objects: Sequence[Object]
    resource_version: str
    """A watch from here on misses nothing."""


class Watch:
    """A stream of events, as ``{"type": …, "object": …}``. Iterate in one thread; ``stop`` it from any."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response

    def __iter__(self) -> Iterator[Object]:
        """Ends when the server ends the stream; half an event is none. Raises Gone, or Unreachable when it breaks."""
        with _translated_errors():
            rest = b""
            for chunk in self._response.stream(amt=None):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _event(line)

    def stop(self) -> None:
        """Wake the reader, whose iteration then ends."""
        # Neither socket nor connection is left when the stream has ended by itself.
        with suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def close(self) -> None:
        self._response.close()


class ApiServer:
    """The API server of one cluster. Safe to share between threads."""

    def __init__(
        self, configure: Callable[[], Configuration], *, before_write: Callable[[], None] | None = None
    ) -> None:
        """``configure`` says where the server is and who asks: now, and again when the server knows us no more.

        ``before_write`` is asked before every write; what it raises stops that write.
        """
        self._configure = configure
        self._before_write = before_write
        self._open_access()

    def _open_access(self) -> None:
        with _translated_errors():
            configuration = self._configure()
        # Whoever calls knows when to try again, and a write must not be sent twice.
        configuration.retries = False
        self._access = ApiClient(configuration)

    def check_write(self) -> None:
        """Raises what keeps this process from writing, if anything does: for writes elsewhere that follow from here."""
        if self._before_write is not None:
            self._before_write()

    def list(self, kind: Kind, *, namespace: str | None = None, labels: str = "") -> Listing:
        """All objects, page by page, in ``namespace`` or everywhere. Raises Gone when paging took too long."""
        objects: list[Object] = []
        query = {"limit": str(PAGE_SIZE), "labelSelector": labels}
        while True:
            page = self._call("GET", kind.path(namespace=namespace), query=query, seconds=LIST_SECONDS)
            objects += page["items"]
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return Listing(objects, page["metadata"]["resourceVersion"])

    def newest_version(self, kind: Kind, *, namespace: str | None = None, labels: str = "") -> int:
        """The resourceVersion that a list would have now."""
        query = {"limit": "1", "labelSelector": labels}
        page = self._call("GET", kind.path(namespace=namespace), query=query)
        with _translated_errors():
            return int(page["metadata"]["resourceVersion"])

    @contextmanager
    def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str = "",
        silence_seconds: float = SILENCE_SECONDS,
    ) -> Iterator[Watch]:
        """Events after ``resource_version``, with bookmarks. Raises Gone when that is no longer kept."""
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            "labelSelector": labels,
        }
        response = self._send("GET", kind.path(namespace=namespace), query=query, seconds=silence_seconds)
        with closing(Watch(response)) as watch:
            yield watch

    def get(self, kind: Kind, *, name: str, namespace: str | None = None) -> Object:
        return self._call("GET", kind.path(namespace=namespace, name=name))

    def create(self, kind: Kind, manifest: Object) -> Object:
        """Raises AlreadyExists."""
        body = {"apiVersion": kind.api_version, "kind": kind.name} | manifest
        return self._call("POST", kind.path(namespace=manifest["metadata"].get("namespace")), body=body)

    def replace(self, kind: Kind, manifest: Object) -> Object:
        """Raises Conflict unless ``metadata.resourceVersion`` is the newest."""
        return self._call("PUT", _path_of(kind, manifest), body=manifest)

    def patch_status(self, kind: Kind, patch: Object, *, name: str, namespace: str | None = None) -> Object:
        """Merge ``patch`` into the status. One that names ``metadata.resourceVersion`` raises Conflict when stale."""
        path = kind.path(namespace=namespace, name=name, subresource="status")
        return self._call("PATCH", path, body=patch, content_type="application/merge-patch+json")

    def json_patch(
        self, kind: Kind, operations: Sequence[Mapping[str, Any]], *, name: str, namespace: str | None = None
    ) -> Object:
        """Raises Refused (422) when a ``test`` operation fails."""
        path = kind.path(namespace=namespace, name=name)
        return self._call("PATCH", path, body=list(operations), content_type="application/json-patch+json")

    def apply(self, kind: Kind, manifest: Object, *, field_manager: str, force: bool = False) -> Object:
        """Server-side apply. Raises Conflict with the fields that others own, unless they are taken by ``force``."""
        query = {"fieldManager": field_manager, "fieldValidation": "Strict"} | ({"force": "true"} if force else {})
        body = {"apiVersion": kind.api_version, "kind": kind.name} | manifest
        content_type = "application/apply-patch+yaml"
        return self._call("PATCH", _path_of(kind, manifest), query=query, body=body, content_type=content_type)

    def delete(self, kind: Kind, *, name: str, namespace: str | None = None, uid: str | None = None) -> None:
        """Ask for the object to go; with ``uid`` only that very object, else Conflict. Raises NotFound."""
        body = {"preconditions": {"uid": uid}} if uid else {}
        self._call("DELETE", kind.path(namespace=namespace, name=name), body=body)

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        seconds: float = CALL_SECONDS,
    ) -> Object:
        response = self._send(method, path, query=query, body=body, content_type=content_type, seconds=seconds)
        with closing(response), _translated_errors():
            answer: Object = json.loads(response.read())
            response.release_conn()
            return answer

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        seconds: float,
    ) -> urllib3.BaseHTTPResponse:
        """The answer, of which only the head was read. Raises what any status but 2xx means."""
        if method != "GET":
            self.check_write()
        headers = {"Accept": "application/json", "User-Agent": "proxyfleet"}
        if body is not None:
            headers["Content-Type"] = content_type
        asked = urlencode({key: value for key, value in (query or {}).items() if value})
        with _span(method, path), _translated_errors():
            access = self._access
            # Reads a ServiceAccount's token anew, which rotates.
            access.update_params_for_auth(headers, [], ["BearerToken"])
            response: urllib3.BaseHTTPResponse = access.rest_client.pool_manager.request(
                method,
                f"{access.configuration.host}{path}?{asked}",
                body=None if body is None else json.dumps(body),
                headers=headers,
                preload_content=False,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds),
            )
            if 200 <= response.status < 300:
                return response
            with closing(response):
                if response.status == HTTPStatus.UNAUTHORIZED:
                    # For the next call: a kubeconfig's token was perhaps replaced, which nothing else looks at again.
                    self._open_access()
                raise error_of(response.status, status_in(response.read()))


def connect(kubeconfig: Path | None = None, *, before_write: Callable[[], None] | None = None) -> ApiServer:
    """Access by ``kubeconfig`` if given, else as a pod's ServiceAccount, else by the standard KUBECONFIG.

    Raises Unreachable when there is neither, or what there is can't be read.
    """

    def configure() -> Configuration:
        configuration = Configuration()
        if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(client_configuration=configuration)
        else:
            config_file = None if kubeconfig is None else str(kubeconfig)
            load_kube_config(config_file, client_configuration=configuration, persist_config=False)
        return configuration

    return ApiServer(configure, before_write=before_write)


def _path_of(kind: Kind, manifest: Object) -> str:
    metadata = manifest["metadata"]
    return kind.path(namespace=metadata.get("namespace"), name=metadata["name"])


def _span(method: str, path: str) -> AbstractContextManager[object]:
    """Writes are worth a trace of their own; what is read, and the Lease, every other second, only as a part of one."""
    if not tracing.is_traced() and (method == "GET" or LEASE.group in path):
        return nullcontext()
    return tracing.span(f"kubernetes {method}", kind=SpanKind.CLIENT, path=path)


def _event(line: bytes) -> Object:
    event: Object = json.loads(line)
    if event["type"] == "ERROR":
        raise error_of(event["object"].get("code", 500), event["object"])
    # What everyone who follows a watch relies on.
    int(event["object"]["metadata"]["resourceVersion"])
    return event


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Errors of the libraries below as ClusterErrors."""
    try:
        yield
    except ConfigException as error:
        raise Unreachable(f"no access to a cluster: {error}") from error
    except yaml.YAMLError:
        # Its message may quote the file, which holds credentials.
        raise Unreachable("no access to a cluster: the kubeconfig is not YAML") from None
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"the API server can't be reached: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"what answered is not an API server: {type(error).__name__}: {error}") from error

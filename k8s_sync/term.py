"""Everything that a bridge does while it leads: in from the cluster, out to it, and a sign of life."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from django.db import connection

from k8s_sync import mirror, secrets
from k8s_sync.client import ApiServer, Object
from k8s_sync.crew import Crew
from k8s_sync.feed import Feed
from k8s_sync.identity import confirm_cluster
from k8s_sync.kinds import PROVIDER_HEALTH, PROXY, SECRET
from k8s_sync.mirror import Mirror
from k8s_sync.provider_health import ProviderHealths
from k8s_sync.publisher import PARALLEL, Publisher
from k8s_sync.reflector import Reflector
from k8s_sync.secrets import SecretMirror
from proxyfleet.fleet.models import SecretUse

PUBLISH_SECONDS = 1.0
RETRY_SECONDS = 2.0
HEARTBEAT_SECONDS = 10.0
SECRETS_FIRST_SECONDS = 30.0
"""So long, at the start, proxies wait for the Secrets that they may refer to."""


class Term:
    """Runs from ``start`` to ``stop``, once."""

    def __init__(
        self,
        api: ApiServer,
        *,
        identity: str,
        fleet_id: str,
        namespace: str | None,
        provider_types: Mapping[str, str],
        clock: Callable[[], datetime],
    ) -> None:
        """``provider_types`` has the type of each configured entry."""
        self._api = api
        self._identity = identity
        self._namespace = namespace
        self._clock = clock
        self._crew = Crew()
        self._secrets = [self._secrets_for(use) for use in SecretUse]
        self._mirror = Mirror(api, namespace=namespace)
        self._proxies = Feed(
            api, PROXY, self._leading(self._mirror.deliver), known=self._mirror.known, namespace=namespace
        )
        self._healths = Reflector(api, PROVIDER_HEALTH, changed=lambda _name: None, listed=lambda: None)
        self._provider_health = ProviderHealths(api, self._healths.store, provider_types, fleet_id=fleet_id)
        self._publisher = Publisher(
            api,
            self._proxies.objects,
            self._proxies.deliveries,
            remarks=self._mirror.remarks,
            namespace=namespace,
            identity=identity,
        )
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="publish")

        for feed in self._secrets:
            feed.join(self._crew)
        self._proxies.join(self._crew, after=self._await_secrets)
        self._crew.add("follow providerhealths", self._healths.run, stop=self._healths.stop)
        self._crew.every(PUBLISH_SECONDS, "publish proxies", self._publish)
        self._crew.every(PUBLISH_SECONDS, "publish provider health", self._publish_provider_health)
        self._crew.every(RETRY_SECONDS, "retry proxies", self._retry)
        self._crew.every(HEARTBEAT_SECONDS, "heartbeat", self._beat)

    def problem(self) -> str:
        """What keeps the rows from showing the cluster, or will; empty when nothing does."""
        feeds = (*self._secrets, self._proxies)
        problems = [*(feed.problem for feed in feeds), self._healths.problem]
        found = dict.fromkeys(filter(None, problems))
        if not found and not all(feed.has_listed for feed in feeds):
            return "the first list is not complete yet"
        return "; ".join(found)

    def start(self) -> None:
        """Raises AnotherCluster, and Unreachable or django.db.Error when it may be tried again; nothing runs then."""
        try:
            confirm_cluster(self._api)
        finally:
            connection.close()  # the caller's thread has no other use for one
        self._crew.start()

    def stop(self) -> None:
        """Returns when nothing runs any more."""
        self._crew.stop()
        self._pool.shutdown()

    def check(self) -> None:
        """Raises what a thread failed of."""
        self._crew.check()

    def _secrets_for(self, use: SecretUse) -> Feed:
        mirrored = SecretMirror(use, namespace=self._namespace)
        return Feed(
            self._api,
            SECRET,
            self._leading(mirrored.deliver),
            known=mirrored.known,
            namespace=self._namespace,
            labels=mirrored.labels,
            key=secrets.key_of,
        )

    def _leading(self, deliver: Callable[[str, Object | None, datetime], None]) -> Callable[[str, Object | None], None]:
        """``deliver`` now, or NotLeading: whoever slept past its Lease knows the cluster as it was, and would undo what
        the next leader did.
        """

        def handle(key: str, obj: Object | None) -> None:
            self._api.check_write()
            deliver(key, obj, self._clock())

        return handle

    def _await_secrets(self) -> None:
        deadline = time.monotonic() + SECRETS_FIRST_SECONDS
        while not all(feed.is_complete for feed in self._secrets) and time.monotonic() < deadline:
            if self._crew.is_stopping(wait=0.1):
                return

    def _publish(self) -> None:
        if self._proxies.has_listed:
            self._publisher.publish(self._pool, self._clock())

    def _publish_provider_health(self) -> None:
        if self._healths.wait_until_listed(0):
            self._provider_health.publish()

    def _retry(self) -> None:
        for uid in self._mirror.ready():
            self._proxies.deliveries.add(uid)

    def _beat(self) -> None:
        complete = self._proxies.is_complete and all(feed.is_complete for feed in self._secrets)
        self._api.check_write()
        mirror.heartbeat(self._clock(), namespace=self._namespace, leader=self._identity, complete=complete)

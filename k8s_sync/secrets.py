"""Labelled Secrets become rows, because the workers that need them have no way to the cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from k8s_sync.client import Object
from proxyfleet.fleet import hints
from proxyfleet.fleet.models import MirroredSecret, Proxy, SecretUse
from proxyfleet.fleet.ports import ports
from proxyfleet.fleet.secrets import label_of

logger = logging.getLogger(__name__)


def key_of(secret: Object) -> str:
    """Secrets are known by their names: those are what proxies refer to."""
    return f"{secret['metadata']['namespace']}/{secret['metadata']['name']}"


class SecretMirror:
    """The rows for one use. ``deliver`` is called by one thread."""

    def __init__(self, use: SecretUse, *, namespace: str | None) -> None:
        """``namespace`` is the only one that is mirrored; None: all are."""
        self.labels = f"{label_of(use)}=true"
        """A Secret that loses the label is, to who watches by it, deleted."""
        self._use = use
        self._namespace = namespace

    def known(self) -> Iterable[str]:
        rows = MirroredSecret.objects.filter(use=self._use)
        if self._namespace is not None:
            rows = rows.filter(namespace=self._namespace)
        return [f"{namespace}/{name}" for namespace, name in rows.values_list("namespace", "name")]

    def deliver(self, key: str, secret: Object | None, now: datetime) -> None:
        """Make the row of the Secret ``key`` agree with it, and have those look that refer to it, if it changed."""
        namespace, _, name = key.partition("/")
        data = None if secret is None else secret.get("data") or {}
        with transaction.atomic():
            row = MirroredSecret.objects.filter(namespace=namespace, name=name, use=self._use)
            before = row.values_list("data", flat=True).first()
            if data == before:
                return
            if data is None:
                row.delete()
            else:
                row.update_or_create(namespace=namespace, name=name, use=self._use, defaults={"data": data})
            self._wake(namespace, name, now)
        logger.info("Secret %s for %s %s", key, self._use, "is gone" if data is None else "is mirrored")

    def _wake(self, namespace: str, name: str, now: datetime) -> None:
        if self._use == SecretUse.CLOUD_INIT:
            hints.wake(_ids(Proxy.objects.filter(namespace=namespace, cloud_init_secret_name=name)), now)
        else:
            ports.prober.probe_soon(_ids(Proxy.objects.filter(namespace=namespace, credentials_secret_name=name)))


def _ids(proxies: QuerySet[Proxy]) -> list[int]:
    return list(proxies.values_list("pk", flat=True))

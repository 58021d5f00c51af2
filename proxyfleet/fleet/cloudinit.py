"""The cloud-init user-data of a proxy, from wherever its spec says."""

from __future__ import annotations

from proxyfleet.fleet.models import Proxy


class Unresolved(Exception):
    """The user-data can't be read now; the message says what to do."""


def resolve(proxy: Proxy) -> bytes | None:
    """User-data, byte for byte as declared; None when the spec has none.

    Raises Unresolved when it lies in a Secret: those are read through the cluster, and none is connected.
    """
    if proxy.cloud_init_inline is not None:
        return proxy.cloud_init_inline.encode()
    if proxy.cloud_init_secret_name:
        secret = f"{proxy.namespace}/{proxy.cloud_init_secret_name}"
        raise Unresolved(f"cloudInit.secretRef: the Secret {secret} can't be read: no cluster is connected")
    return None

"""The cloud-init user-data of a proxy, from wherever its spec says."""

from __future__ import annotations

from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.secrets import SecretMissing, user_data


class Unresolved(Exception):
    """The user-data can't be read now; the message says what to do."""


def resolve(proxy: Proxy) -> bytes | None:
    """User-data, byte for byte as declared; None when the spec has none. Raises Unresolved."""
    if proxy.cloud_init_inline is not None:
        return proxy.cloud_init_inline.encode()
    if proxy.cloud_init_secret_name:
        try:
            return user_data(proxy)
        except SecretMissing as missing:
            raise Unresolved(f"cloudInit.secretRef: {missing}") from None
    return None

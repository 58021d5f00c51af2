"""What proxies take from Secrets of the cluster, by way of their mirrored rows. Values are never logged."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from proxyfleet.conf import settings
from proxyfleet.fleet.models import MirroredSecret, Proxy, SecretUse
from proxyfleet.fleet.spec import MAX_CLOUD_INIT_BYTES

_LABEL_PREFIX = "crawl.example.com/"


class SecretMissing(Exception):
    """A Secret, or something in it, is not there; the message says what to do."""


class NamesCredentials(Protocol):
    """A proxy, or what was read of one."""

    @property
    def id(self) -> int: ...
    @property
    def namespace(self) -> str: ...
    @property
    def credentials_secret_name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """What an External proxy asks of whoever uses it."""

    username: str
    password: str = field(repr=False)


def label_of(use: SecretUse) -> str:
    """The label by which a Secret's owner lets it be used so, with the value ``true``."""
    return _LABEL_PREFIX + use.value


def user_data(proxy: Proxy) -> bytes:
    """The content that ``cloudInit.secretRef`` names, byte for byte. Raises SecretMissing."""
    namespace, name, key = proxy.namespace, proxy.cloud_init_secret_name, proxy.cloud_init_secret_key
    row = MirroredSecret.objects.filter(namespace=namespace, name=name, use=SecretUse.CLOUD_INIT).first()
    if row is None:
        raise SecretMissing(_absent(namespace, name, SecretUse.CLOUD_INIT))
    content = _value(row, key)
    if len(content) > MAX_CLOUD_INIT_BYTES:
        raise SecretMissing(f"{key!r} of the Secret {namespace}/{name} is larger than {MAX_CLOUD_INIT_BYTES} bytes")
    return content


def credentials_of(proxies: Iterable[NamesCredentials]) -> Mapping[int, Credentials | SecretMissing]:
    """By id, the credentials of those proxies whose spec names some, or why there are none; in one query at most."""
    wanted = [proxy for proxy in proxies if proxy.credentials_secret_name]
    if not wanted:
        return {}
    rows = MirroredSecret.objects.filter(
        use=SecretUse.CREDENTIALS,
        namespace__in={proxy.namespace for proxy in wanted},
        name__in={proxy.credentials_secret_name for proxy in wanted},
    )
    by_name = {(row.namespace, row.name): row for row in rows}
    return {
        proxy.id: _credentials(proxy, by_name.get((proxy.namespace, proxy.credentials_secret_name))) for proxy in wanted
    }


def _credentials(proxy: NamesCredentials, row: MirroredSecret | None) -> Credentials | SecretMissing:
    namespace, name = proxy.namespace, proxy.credentials_secret_name
    if row is None:
        return SecretMissing(_absent(namespace, name, SecretUse.CREDENTIALS))
    try:
        return Credentials(_value(row, "username").decode(), _value(row, "password").decode())
    except UnicodeDecodeError:
        return SecretMissing(f"username or password in the Secret {namespace}/{name} is not text")
    except SecretMissing as missing:
        return missing


def _absent(namespace: str, name: str, use: SecretUse) -> str:
    if not settings().cluster_sync:
        return f"the Secret {namespace}/{name} can't be read: no cluster is connected"
    return f'there is no Secret {namespace}/{name} with the label {label_of(use)}: "true"'


def _value(row: MirroredSecret, key: str) -> bytes:
    try:
        return base64.b64decode(row.data[key], validate=True)
    except KeyError:
        raise SecretMissing(f"the Secret {row.namespace}/{row.name} has no key {key!r}") from None
    except binascii.Error:
        raise SecretMissing(f"{key!r} of the Secret {row.namespace}/{row.name} is not base64") from None

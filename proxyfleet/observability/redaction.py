"""A net under the care that is taken everywhere: what looks like a secret is struck out of logs and traces."""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import urlsplit

from proxyfleet.conf import settings

STRUCK = "***"
_SHORTEST = 8
"""A secret shorter than this may be a word of every other line."""

_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), replacement)
    for pattern, replacement in (
        # Cloud-init, up to the end of whatever quotes it.
        (r"(#cloud-config\b).*", rf"\1 {STRUCK}"),
        (r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*-----|$)", rf"\1{STRUCK}"),
        # redis://:password@host, http://user:password@proxy
        (r"(\b[a-z][a-z0-9+.-]*://)[^\s/@:\"']*:[^\s/@\"']*@", rf"\1{STRUCK}@"),
        (r"(authorization[\"']?\s*[:=]\s*[\"']?)(?:(?:bearer|basic|digest)\s+)?[^\s\"',}]+", rf"\1{STRUCK}"),
        (r"(\bbearer\s+)[a-z0-9._~+/-]{8,}=*", rf"\1{STRUCK}"),
        (r"(PVEAPIToken=)[^\s\"',}]+", rf"\1{STRUCK}"),
        # A JSON Web Token, as ServiceAccounts have.
        (r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*", STRUCK),
        (
            r"((?:password|passwd|secret|token|(?:api|private|access)[_-]?key)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&}]+",
            rf"\1{STRUCK}",
        ),
    )
)


def redact(text: str) -> str:
    """``text`` without credentials in URLs, headers and assignments, cloud-init, and this process's own secrets."""
    for secret in _own_secrets():
        text = text.replace(secret, STRUCK)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


@cache
def _own_secrets() -> tuple[str, ...]:
    conf = settings()
    secrets = [conf.secret_key, conf.discovery_token, conf.metrics_token]
    texts = [secret.get_secret_value() for secret in secrets if secret is not None]
    texts += [urlsplit(url.get_secret_value()).password or "" for url in (conf.database_url, conf.broker_url)]
    return tuple(text for text in texts if len(text) >= _SHORTEST)

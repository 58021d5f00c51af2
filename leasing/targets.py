"""The name of a target: the host that a crawler wants to reach, in one spelling."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

import idna

MAX_LENGTH = 2048
"""Longest URL that is accepted in place of a host."""
_ASCII_HOST = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)


def normalise_target(text: str) -> str:
    """The host of a URL, or a bare host, in lower case; a name that is not ASCII in its A-label form (RFC 5891).

    Scheme, user, port, path and a trailing dot fall away. Raises ValueError.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"is longer than {MAX_LENGTH} characters")
    host = _host(text.strip())
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        if getattr(address, "scope_id", None):
            raise ValueError("must not have a scope: it means something on one machine only")
        return str(address)
    host = host.removesuffix(".").lower()
    if not host.isascii():
        try:
            host = idna.encode(host, uts46=True).decode()
        except idna.IDNAError:
            raise ValueError("is not a host name") from None
    if not _ASCII_HOST.fullmatch(host):
        raise ValueError("is neither a host name, nor an IP address, nor a URL with one")
    return host


def _host(text: str) -> str:
    bare = text.removeprefix("[").removesuffix("]")
    if bare.count(":") > 1 and "/" not in bare:
        return bare
    try:
        return urlsplit(text if "://" in text else f"//{text}").hostname or ""
    except ValueError:
        raise ValueError("is not a URL with a host") from None

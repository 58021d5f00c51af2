"""What an answer of ``/v1/whoami``, or of a service like it, tells of the proxy. Pure."""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass

_NAMES = ("Client-IP", "Forwarded", "True-Client-IP", "Via", "X-Client-IP", "X-Forwarded-For", "X-Real-IP")
"""Headers in which proxies tell whom they forward for; Via names the proxy, but some put their client's address in."""

_FORWARDED_FOR = re.compile(r"for=\"?([^\";,]+)", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,()]+")


@dataclass(frozen=True, slots=True)
class Told:
    egress_ip: str | None = None
    leaking_headers: tuple[str, ...] | None = None
    """Sorted names; None: it does not say which headers arrived."""


def read_answer(body: bytes, *, own_address: str) -> Told:
    """``own_address`` is that from which we reached the proxy.

    The address is taken from ``{"ip": "…"}`` or a bare address, the headers from ``{"headers": {name: value}}``. A
    header leaks when it has an address of ours, or any that is not the proxy's own: behind a NAT, the proxy sees us
    under one that we do not know.
    """
    text = body.decode("latin-1").strip()
    if not text.startswith("{"):
        return Told(_address(text))
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):  # the nesting of the answer is the peer's choice
        return Told()
    egress_ip = _address(answer.get("ip"))
    headers = answer.get("headers")
    if not isinstance(headers, dict) or egress_ip is None:
        return Told(egress_ip)
    arrived = {str(name).lower(): value for name, value in headers.items() if isinstance(value, str)}
    ours = _address(own_address)
    leaking = (name for name in _NAMES if _leaks(name, arrived.get(name.lower(), ""), egress_ip, ours))
    return Told(egress_ip, tuple(leaking))


def _leaks(name: str, value: str, egress_ip: str, ours: str | None) -> bool:
    parts = _FORWARDED_FOR.findall(value) if name == "Forwarded" else _SEPARATORS.split(value)
    found = {_address(_without_port(part.strip())) for part in parts} - {None, egress_ip}
    return ours in found if name == "Via" else bool(found)  # "1.1 10.0.0.5:3128 (squid)" is the proxy itself


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


def _address(told: object) -> str | None:
    if not isinstance(told, str) or "%" in told:  # a scope means something on the peer's machine only
        return None
    try:
        address = ipaddress.ip_address(told)
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)

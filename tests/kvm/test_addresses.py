"""What an agent that does not answer says of a guest: libvirt has none that falls silent at a given moment."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import libvirt
import pytest

from providers.errors import Unavailable
from providers.libvirt.connections import Session
from providers.libvirt.domain_xml import Described
from providers.libvirt.guests import Domain

MAC = "52:54:00:00:00:01"
BOOTING = Described(
    name="guest",
    uuid=UUID(int=1),
    macs=frozenset({MAC}),
    agent_connected=True,
    record=None,
    known_address=None,
)


class Handle:
    """A domain whose agent is connected, and does not answer."""

    def __init__(self, leases: dict[str, Any]) -> None:
        self._leases = leases

    def agentSetResponseTimeout(self, seconds: int, flags: int) -> None:  # noqa: N802 - libvirt's name
        """Taken."""

    def setMetadata(self, *arguments: Any) -> None:  # noqa: N802 - libvirt's name
        """Taken."""

    def interfaceAddresses(self, source: int, flags: int) -> dict[str, Any]:  # noqa: N802 - libvirt's name
        if source == libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT:
            raise Unavailable("the agent does not answer")
        return self._leases


def domain(described: Described, **leases: Any) -> Domain:
    session = SimpleNamespace(rpc=lambda call, *arguments: call(*arguments))
    return Domain(cast("Session", session), Handle(leases), described)


def test_a_guest_that_never_had_an_address_has_none_yet() -> None:
    assert domain(BOOTING).address() is None


def test_one_that_had_an_address_can_not_be_asked() -> None:
    with pytest.raises(Unavailable, match="address"):
        domain(replace(BOOTING, known_address="192.0.2.7")).address()


def test_the_lease_stands_in_for_the_agent() -> None:
    lease = {"hwaddr": MAC, "addrs": [{"type": libvirt.VIR_IP_ADDR_TYPE_IPV4, "addr": "192.0.2.7", "prefix": 24}]}
    assert domain(BOOTING, vnet0=lease).address() == "192.0.2.7"

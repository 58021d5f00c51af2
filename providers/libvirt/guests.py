"""The domains of a host, in one session: what they are, how they do, and how they are started and ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import libvirt

from providers.errors import Misconfigured, ProviderError, Unavailable
from providers.instances import InstanceState
from providers.libvirt import domain_xml, metadata
from providers.libvirt.addresses import choose
from providers.libvirt.connections import Session
from providers.libvirt.errors import Code

AGENT_SECONDS = 3

UNDEFINE_FLAGS = (
    libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
    | libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
)


class Domain:
    """A domain that was described when it was looked up."""

    def __init__(self, session: Session, handle: Any, described: domain_xml.Described) -> None:
        self._session = session
        self._handle = handle
        self.described = described

    @property
    def is_active(self) -> bool:
        return bool(self._session.rpc(self._handle.isActive))

    def start(self) -> None:
        """Repeatable: one that runs is a success."""
        self._session.find(self._handle.create, missing=Code.OPERATION_INVALID)

    def stop(self) -> None:
        """At once, as pulling the plug does. Repeatable."""
        self._session.find(self._handle.destroy, missing=Code.OPERATION_INVALID)

    def undefine(self) -> None:
        """With all that belongs to it: its UEFI variables too. Repeatable."""
        self._session.find(self._handle.undefineFlags, UNDEFINE_FLAGS, missing=Code.NO_DOMAIN)

    def state(self) -> tuple[InstanceState, str]:
        """Raises InstanceNotFound when it went since it was looked up."""
        return state_of(*self._session.rpc(self._handle.state))

    def address(self) -> str | None:
        """None as long as the guest has none yet.

        Raises Unavailable when it had one and can't be asked now: that is no news about the guest.
        """
        known = self.described.known_address
        found, failure = self._ask_agent() if self.described.agent_connected else (None, None)
        found = found or self._ask_leases()
        if found is None and known is not None:
            name = self.described.name
            raise Unavailable("the guest's address can't be read", detail=f"{name}: {failure or 'its agent is silent'}")
        if found is not None and found != known:
            self._remember(found)
        return found

    def _ask_agent(self) -> tuple[str | None, ProviderError | None]:
        try:
            self._session.rpc(self._handle.agentSetResponseTimeout, AGENT_SECONDS, 0)
            return self._addresses(libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT), None
        except Unavailable as error:
            return None, error

    def _ask_leases(self) -> str | None:
        return self._addresses(libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE)

    def _addresses(self, source: int) -> str | None:
        return choose(self._session.rpc(self._handle.interfaceAddresses, source, 0), self.described.macs)

    def _remember(self, address: str) -> None:
        """So that another worker, too, can tell an agent that fell silent from one that has not spoken yet."""
        self._session.rpc(
            self._handle.setMetadata,
            libvirt.VIR_DOMAIN_METADATA_ELEMENT,
            f"<address>{address}</address>",
            "proxyfleet-address",
            metadata.ADDRESS_NAMESPACE,
            libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_AFFECT_LIVE,
        )


class Domains:
    """Look-ups on one host; a domain that vanishes meanwhile is as good as absent."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._connection = session.connection

    def by_name(self, name: str) -> Domain | None:
        return self._describe(self._session.find(self._connection.lookupByName, name, missing=Code.NO_DOMAIN))

    def by_uuid(self, uuid: UUID) -> Domain | None:
        look_up = self._connection.lookupByUUIDString
        return self._describe(self._session.find(look_up, str(uuid), missing=Code.NO_DOMAIN))

    def define(self, guest: domain_xml.Guest) -> Domain:
        """The domain, or the one that has its name already."""
        text = domain_xml.write(guest)
        handle = self._session.find(self._connection.defineXML, text, missing=Code.OPERATION_FAILED)
        domain = self._describe(handle) if handle is not None else self.by_name(guest.name)
        if domain is None:
            raise Unavailable(f"{guest.name} was deleted while it was being made")
        return domain

    def all(self) -> Iterator[Domain | str]:
        """Every domain; of one whose record is damaged, its name."""
        for handle in self._session.rpc(self._connection.listAllDomains, 0):
            try:
                domain = self._describe(handle)
            except Misconfigured:
                yield handle.name()
            else:
                if domain is not None:
                    yield domain

    def offers_kvm(self) -> bool:
        """Whether the host's processor runs guests, as its libvirt has found out."""
        ask = self._connection.getDomainCapabilities
        return self._session.find(ask, None, None, "q35", "kvm", 0, missing=Code.INVALID_ARGUMENT) is not None

    def _describe(self, handle: Any | None) -> Domain | None:
        text = None if handle is None else self._session.find(handle.XMLDesc, 0, missing=Code.NO_DOMAIN)
        return None if text is None else Domain(self._session, handle, domain_xml.read(text))


def state_of(state: int, reason: int) -> tuple[InstanceState, str]:
    """What libvirt's numbers say, and why, for the proxy's owner."""
    match state:
        case libvirt.VIR_DOMAIN_RUNNING | libvirt.VIR_DOMAIN_BLOCKED:
            return InstanceState.RUNNING, ""
        case libvirt.VIR_DOMAIN_PAUSED if reason == libvirt.VIR_DOMAIN_PAUSED_IOERROR:
            return InstanceState.FAILED, "the guest was paused: its disk can't be written"
        case libvirt.VIR_DOMAIN_PAUSED if reason == libvirt.VIR_DOMAIN_PAUSED_STARTING_UP:
            return InstanceState.PROVISIONING, "the guest starts"
        case libvirt.VIR_DOMAIN_PAUSED | libvirt.VIR_DOMAIN_PMSUSPENDED:
            return InstanceState.STOPPED, "the guest is suspended"
        case libvirt.VIR_DOMAIN_SHUTDOWN:
            return InstanceState.STOPPED, "the guest shuts down"
        case libvirt.VIR_DOMAIN_CRASHED:
            return InstanceState.FAILED, "the guest crashed"
        case libvirt.VIR_DOMAIN_SHUTOFF if reason in _BAD_ENDS:
            return InstanceState.FAILED, "the guest crashed"
        case libvirt.VIR_DOMAIN_SHUTOFF:
            return InstanceState.STOPPED, "the guest is off"
    return InstanceState.PROVISIONING, ""


_BAD_ENDS = frozenset({libvirt.VIR_DOMAIN_SHUTOFF_CRASHED, libvirt.VIR_DOMAIN_SHUTOFF_FAILED})

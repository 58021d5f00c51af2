"""The ``kvm`` and ``kvm2`` drivers: guests on hosts of one's own, reached through nothing but sshd.

A domain is defined before its disk and its seed are filled, and undefined after they are deleted: what a crash leaves
is listed with its owner's name. Each step of a create can be repeated, by another worker too, and by both at once.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeVar
from uuid import UUID, uuid4

from providers.base import BehaviourProfile
from providers.blocks import LibvirtBlock, LibvirtHost, LibvirtMachineType
from providers.cloudinit import vendor_data
from providers.errors import Conflict, InstanceNotFound, InvalidRequest, ProviderError, Unavailable
from providers.instances import Instance, InstanceList, InstanceRequest, InstanceState, TargetCheck
from providers.libvirt import placement
from providers.libvirt.checks import check_host
from providers.libvirt.connections import Connections, FreshConnections, KeptConnections, Session
from providers.libvirt.domain_xml import Guest
from providers.libvirt.errors import KeyUnusable
from providers.libvirt.guests import Domain, Domains
from providers.libvirt.images import Base, BaseImages, name_by_key, name_by_source, no_space
from providers.libvirt.metadata import Record
from providers.libvirt.sources import Image
from providers.libvirt.volumes import Pool
from providers.profiles import PROFILES
from providers.registry import entry_of
from providers.seed_iso import build_seed_iso

CALL_SECONDS = 40.0
"""A session of any verb but a fetch; dialling comes on top, and ending a guest may take most of it."""

MAKE_SECONDS = 180.0
"""What a create needs beside the fetch of its image: two sessions and what it takes to dial them."""

OVERLAY_SECONDS = 10.0
POLL_SECONDS = 0.05

logger = logging.getLogger(__name__)

T = TypeVar("T")
HostListing = tuple[list[Instance], list[str]]
"""The instances on a host, and what of it could not be read."""


@dataclass(frozen=True, slots=True)
class Policy:
    """All that tells kvm2 from kvm."""

    connections: Callable[[LibvirtBlock], Connections]
    name_of_base: Callable[[str, Image], str]
    checks_space: bool
    """Whether a pool that is too full for another disk is noticed before anything is made in it."""


class LibvirtProvider:
    """One entry of type ``kvm`` or ``kvm2``."""

    profile: ClassVar[BehaviourProfile]
    policy: ClassVar[Policy]

    def __init__(self, *, entry: str, block: LibvirtBlock, fleet_id: str, state_dir: Path) -> None:  # noqa: ARG002 - the hosts keep all state
        self._entry = entry
        self._block = block
        self._fleet_id = fleet_id
        self._hosts = {host.name: host for host in block.hosts}
        self._disk_bytes = block.disk_size_gb << 30
        self._connections = self.policy.connections(block)
        self._bases = BaseImages(
            entry=entry,
            connections=self._connections,
            name_of=self.policy.name_of_base,
            reserve_bytes=self._disk_bytes if self.policy.checks_space else None,
        )

    def create(self, request: InstanceRequest) -> Instance:
        host = placement.host_of(self._block, request.placement.zone)
        machine = placement.machine_type_of(self._block, request.placement.machine_type)
        image = placement.image_of(self._block, request.placement.image)
        deadline = time.monotonic() + self.profile.create_deadline_seconds - MAKE_SECONDS
        with _creating(request.name):
            with self._session(host) as session:
                domain = self._held_by(request, Domains(session).by_name(request.name))
                if domain is not None and domain.is_active:
                    return self._instance(host, domain)
            base = self._bases.ensure(host, image, deadline=deadline)
            with self._session(host) as session:
                pool = Pool(session)
                self._check_space(pool, host)
                domain = self._define(session, pool, request, machine, image)
                self._start(domain, pool, base, request)
                return self._instance(host, domain)

    def get(self, provider_id: str) -> Instance:
        host_name, uuid = self._parse(provider_id)
        if uuid is None:
            raise InstanceNotFound(f"{provider_id} was never made")
        host = self._hosts.get(host_name)
        if host is None:
            raise InvalidRequest(f"host {host_name} of {provider_id} is no longer among the hosts of {self._entry!r}")
        with self._session(host) as session:
            domain = Domains(session).by_uuid(uuid)
            if domain is None or not self._is_ours(domain):
                raise InstanceNotFound(f"host {host.name} has no instance {provider_id}")
            return self._instance(host, domain)

    def delete(self, provider_id: str) -> None:
        host_name, uuid = self._parse(provider_id)
        host = self._hosts.get(host_name)
        if uuid is None or host is None:
            return
        with self._session(host) as session:
            domain = Domains(session).by_uuid(uuid)
            if domain is None or not self._is_ours(domain):
                return
            with suppress(InstanceNotFound):  # another worker deletes it too, and the domain goes last
                domain.stop()
                pool = Pool(session)
                pool.delete(_disk_of(domain.described.name))
                pool.delete(_seed_of(domain.described.name))
                domain.undefine()

    def list(self) -> InstanceList:
        instances: list[Instance] = []
        unreachable: list[str] = []
        for found, unknown in self._of_each_host(self._list_host):
            instances += found
            unreachable += unknown
        return InstanceList(tuple(instances), unreachable=tuple(unreachable))

    def check(self) -> Iterable[TargetCheck]:
        return self._of_each_host(lambda host: check_host(host, self._connections))

    def _session(self, host: LibvirtHost) -> AbstractContextManager[Session]:
        return self._connections.session(host, seconds=CALL_SECONDS)

    def _parse(self, provider_id: str) -> tuple[str, UUID | None]:
        """The host's name and the domain's UUID; None when that is none, and thus was never given out."""
        if entry_of(provider_id) != self._entry:
            raise InvalidRequest(f"{provider_id} was not made by provider {self._entry!r}")
        host_name, _, uuid = provider_id.removeprefix(f"{self._entry}://").partition("/")
        try:
            return host_name, UUID(uuid)
        except ValueError:
            return host_name, None

    def _is_ours(self, domain: Domain) -> bool:
        record = domain.described.record
        return record is not None and record.entry == self._entry and record.identity.fleet_id == self._fleet_id

    def _held_by(self, request: InstanceRequest, domain: Domain | None) -> Domain | None:
        """The domain of the request's name, if there is one. Raises Conflict when it is someone else's."""
        if domain is None:
            return None
        record = domain.described.record
        if record is None or record.entry != self._entry or record.identity != request.identity:
            raise Conflict(f"the name {request.name} is held by another owner")
        return domain

    def _check_space(self, pool: Pool, host: LibvirtHost) -> None:
        if self.policy.checks_space and (free := pool.available()) < self._disk_bytes:
            raise no_space(host, need=self._disk_bytes, free=free)

    def _define(
        self, session: Session, pool: Pool, request: InstanceRequest, machine: LibvirtMachineType, image: Image
    ) -> Domain:
        """The domain of the request, which another worker may have defined in the meantime."""
        host, seed = session.host, _seed_of(request.name)
        # Empty still: only the host's clock, as the time of this file, can say when the instance was made.
        pool.create_file(seed)
        born = pool.state(seed)
        if born is None:
            raise Unavailable(f"{request.name} was deleted while it was being made")
        guest = Guest(
            name=request.name,
            uuid=uuid4(),
            mac=f"52:54:{secrets.token_bytes(4).hex(':')}",
            vcpus=machine.vcpus,
            memory_mb=machine.memory_mb,
            virt_type=_virt_type(host, session),
            firmware=image.firmware,
            disk=pool.path_of(_disk_of(request.name)),
            seed=pool.path_of(seed),
            bridge=host.bridge,
            network=host.network,
            record=Record(self._entry, request.identity, born.modified_at),
        )
        domain = self._held_by(request, Domains(session).define(guest))
        assert domain is not None
        return domain

    def _start(self, domain: Domain, pool: Pool, base: Base, request: InstanceRequest) -> None:
        """Fill what the guest boots from, and boot it. Raises InstanceNotFound when it is deleted meanwhile."""
        if domain.is_active:
            return
        iso = build_seed_iso(
            instance_id=request.name,
            hostname=request.identity.name,
            user_data=request.user_data,
            vendor_data=vendor_data(self._block.vendor_data, install_guest_agent=self._block.install_guest_agent),
        )
        disk, seed = _disk_of(request.name), _seed_of(request.name)
        try:
            pool.upload(seed, [iso])
            size = max(base.virtual_size, self._disk_bytes)
            if not pool.create_overlay(disk, base=base.path, base_format=base.format, capacity=size):
                _await_overlay(pool, disk)
            domain.start()
        except InstanceNotFound:
            # Whoever deleted the domain found none of these yet.
            pool.delete(disk)
            pool.delete(seed)
            raise

    def _instance(self, host: LibvirtHost, domain: Domain, *, ask_guest: bool = True) -> Instance:
        record = domain.described.record
        assert record is not None
        state, message = domain.state()
        address = None
        if state is InstanceState.RUNNING:
            address = domain.address() if ask_guest else domain.described.known_address
            if address is None:
                state, message = InstanceState.PROVISIONING, "the guest boots; it has no address yet"
        return Instance(
            provider_id=f"{self._entry}://{host.name}/{domain.described.uuid}",
            identity=record.identity,
            state=state,
            created_at=record.created_at,
            address=address,
            message=message,
        )

    def _list_host(self, host: LibvirtHost) -> HostListing:
        listing: HostListing = ([], [])
        found, unknown = listing
        try:
            with self._session(host) as session:
                for domain in Domains(session).all():
                    if isinstance(domain, str):
                        unknown.append(f"{host.name}/{domain}")
                    elif self._is_ours(domain):
                        with suppress(InstanceNotFound):
                            found.append(self._instance(host, domain, ask_guest=False))
        except ProviderError as error:
            logger.warning("Host %s can't be listed: %s", host.name, error.detail)
            return [], [host.name]
        return listing

    def _of_each_host(self, ask: Callable[[LibvirtHost], T]) -> tuple[T, ...]:
        """Of all hosts at once: one that does not answer takes no other's time."""
        with ThreadPoolExecutor(len(self._block.hosts), thread_name_prefix="libvirt-host") as pool:
            # Each in a context of its own, which is ours: its calls belong to our trace.
            asked = [pool.submit(copy_context().run, ask, host) for host in self._block.hosts]
            return tuple(answer.result() for answer in asked)


class KvmProvider(LibvirtProvider):
    profile = PROFILES["kvm"]
    policy = Policy(connections=KeptConnections, name_of_base=name_by_source, checks_space=False)


class Kvm2Provider(LibvirtProvider):
    profile = PROFILES["kvm2"]
    policy = Policy(connections=FreshConnections, name_of_base=name_by_key, checks_space=True)


@contextmanager
def _creating(name: str) -> Iterator[None]:
    """Two errors mean something else to a create than to the other verbs."""
    try:
        yield
    except KeyUnusable as error:
        # It heals by no retry: who asks for an instance is told, and those that are there go on.
        raise InvalidRequest(str(error), detail=error.detail) from error
    except InstanceNotFound as error:
        raise Unavailable(f"{name} was deleted while it was being made", detail=error.detail) from error


def _virt_type(host: LibvirtHost, session: Session) -> Literal["kvm", "qemu"]:
    if host.virt_type != "auto":
        return host.virt_type
    return "kvm" if Domains(session).offers_kvm() else "qemu"


def _await_overlay(pool: Pool, name: str) -> None:
    """Until the worker that makes it is done: libvirt shows a volume before it is complete."""
    deadline = time.monotonic() + OVERLAY_SECONDS
    while not pool.is_overlay(name):
        if time.monotonic() > deadline:
            raise Unavailable("the disk of the instance is not complete", detail=f"volume {name} has no backing file")
        time.sleep(POLL_SECONDS)


def _disk_of(name: str) -> str:
    return f"{name}.qcow2"


def _seed_of(name: str) -> str:
    return f"{name}-seed.iso"

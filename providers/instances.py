"""What passes between the fleet and a provider: frozen values, no behaviour of a backend in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from providers.checks import CheckReason


class InstanceState(StrEnum):
    """A backend's many states, mapped to the five that the reconciler acts on."""

    PROVISIONING = "provisioning"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who owns an instance. Written in the create call itself, never added afterwards."""

    fleet_id: str
    proxy_uid: UUID
    namespace: str
    name: str
    instance_hash: str

    @property
    def instance_name(self) -> str:
        """Deterministic, so that a create repeated after a crash adopts what the first try made.

        At most 59 characters of ``[a-z0-9-]``, starting with a letter: it fits the narrowest backend (GCE, 63).
        """
        return f"{self.fleet_id}-{self.proxy_uid.hex}-{self.instance_hash[:8]}"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how big; the meaning of each field is the provider's."""

    zone: str = ""
    machine_type: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """Everything that an instance is made from."""

    identity: Identity
    port: int
    placement: Placement = Placement()
    user_data: bytes | None = field(default=None, repr=False)
    """Cloud-init user-data, byte for byte as declared. Never logged."""

    @property
    def name(self) -> str:
        return self.identity.instance_name


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as its backend reports it now."""

    provider_id: str
    identity: Identity
    state: InstanceState
    created_at: datetime
    """The backend's own clock, timezone-aware."""
    address: str | None = None
    port: int | None = None
    """Where clients connect, when the backend decides it; otherwise the requested port holds."""
    message: str = ""
    """The backend's reason for the state, for the proxy's owner."""


@dataclass(frozen=True, slots=True)
class InstanceList:
    """All instances that carry this fleet's tag, as far as the backend could be asked."""

    instances: tuple[Instance, ...]
    unreachable: tuple[str, ...] = ()
    """Zones, hosts or nodes that did not answer: what is missing there is not gone."""

    @property
    def is_partial(self) -> bool:
        return bool(self.unreachable)

    def __iter__(self) -> Iterator[Instance]:
        return iter(self.instances)


@dataclass(frozen=True, slots=True)
class TargetCheck:
    """The verdict of a provider check on one of its hosts, nodes or zones."""

    name: str
    ready: bool
    reason: CheckReason
    message: str = ""


def hash_instance(parts: Mapping[str, object] | Iterable[tuple[str, object]]) -> str:
    """Digest of what an instance is made from: 16 hexadecimal characters, the same on every machine."""
    canonical = json.dumps(dict(parts), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]

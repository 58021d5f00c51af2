"""What a decision is made from: the row as a snapshot, and the provider's own word. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from providers.errors import ProviderError
from providers.instances import Instance
from proxyfleet.fleet.phases import Phase, Verdict

Address = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a decision may depend on, but for the provider's own word."""

    external: bool
    phase: Phase
    reason: str
    message: str
    generation: int

    deletion_requested_at: datetime | None
    skip_cleanup: bool
    draining_since: datetime | None
    drain: timedelta
    active_leases: int

    desired_hash: str
    """Of what the instance should be made from; empty while cloud-init is unresolved."""
    cloud_init_problem: str
    provider: str
    provider_known: bool
    """The entry that the spec names is configured."""
    instance_provider_known: bool
    """The entry that made the current instance is configured."""

    provider_id: str
    instance_hash: str
    instance_serial: int
    creating_hash: str
    """A create of this hash was tried and its outcome is not known."""
    creating_provider: str
    creating_provider_known: bool
    failed_hash: str
    """The provider said of this hash that it can't work."""
    address: Address | None
    """Where clients connect, as the row has it."""
    endpoint: Address | None
    """Where an External proxy is declared to be."""
    port: int

    verdict: Verdict
    outcome: str
    """Of the last probe that changed the verdict."""
    health_message: str

    provisioning_since: datetime | None
    provision_timeout: timedelta
    error_since: datetime | None
    call_errors: int
    instance_failures: int
    known_error: tuple[str, str] | None
    """Reason and message of the provider's error that the proxy shows already."""
    poll: timedelta
    """How often the provider's driver wants a changing instance to be looked at."""
    delete_is_final: bool
    """The driver's delete returns once the instance is gone."""
    retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class Unobserved:
    """The provider was not asked: there is nothing to ask for, or it is too early to ask again."""


@dataclass(frozen=True, slots=True)
class Seen:
    instance: Instance


@dataclass(frozen=True, slots=True)
class Gone:
    """The provider said that the instance no longer exists."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    error: ProviderError


Observation = Unobserved | Seen | Gone | Unreadable

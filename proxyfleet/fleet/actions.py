"""What can be decided about a proxy: each run carries out one of these. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from providers.errors import ProviderError
from proxyfleet.fleet.phases import Phase


@dataclass(frozen=True, slots=True)
class Release:
    """Let the proxy go: nothing of it is left at a provider, or the operator abandons what is."""

    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Drain:
    """No new leases; wait for those that are out."""

    phase: Phase
    until: datetime


@dataclass(frozen=True, slots=True)
class DeleteInstance:
    phase: Phase
    reason: str
    message: str
    """Both say why the instance must go."""


@dataclass(frozen=True, slots=True)
class SweepStrays:
    """An earlier create may have made an instance that is no longer wanted: find it by owner and delete it."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class CreateInstance:
    pass


@dataclass(frozen=True, slots=True)
class ForgetInstance:
    """The instance is gone; the row lets go of it."""

    phase: Phase
    reason: str
    message: str
    lost: bool
    """Nobody asked for it to go."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Nothing to do but to say how it stands, and when to look again (None: when something changes)."""

    phase: Phase
    reason: str
    message: str
    recheck: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Stumble:
    """A provider call failed: say so where it matters, and try again later."""

    meanwhile: Settle
    """How it stands until the error has lasted."""
    error: ProviderError

    @property
    def phase(self) -> Phase:
        return self.meanwhile.phase


Action = Release | Drain | DeleteInstance | SweepStrays | CreateInstance | ForgetInstance | Settle | Stumble

"""What becomes of the row: before a provider call (`prepare`) and after it (`conclude`). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from providers.errors import Blocked, PermanentError, ProviderError, Unavailable
from providers.instances import Instance, InstanceState
from proxyfleet.fleet.actions import (
    Action,
    CreateInstance,
    DeleteInstance,
    Drain,
    ForgetInstance,
    Release,
    Settle,
    Stumble,
    SweepStrays,
)
from proxyfleet.fleet.conditions import Condition
from proxyfleet.fleet.facts import Address, Observation, Seen, Snapshot, Unreadable
from proxyfleet.fleet.phases import BLOCKED_BACKOFF, DRAIN_POLL, ERROR_GRACE, TRANSIENT_BACKOFF, Phase, backoff

Outcome = Instance | ProviderError | None
"""What the provider call of an action gave: an instance, an error, or nothing to tell."""


@dataclass(frozen=True, slots=True)
class Note:
    """An event to append to the proxy's history."""

    kind: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """What to write. Columns that already have the value are left alone."""

    columns: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    provisioned: Condition | None = None
    """None keeps the condition as it is."""
    end_leases: str = ""
    """The cause that the proxy's leases end with; empty leaves them."""
    probe: bool = False
    next_reconcile_at: datetime | None = None
    release: bool = False
    """The proxy goes: nothing of it is left to look after."""


def lease_cause(phase: Phase) -> str:
    """Why leases end when the instance of a proxy in this phase goes."""
    return {Phase.TERMINATING: "proxy_deleted", Phase.REPLACING: "proxy_replaced"}.get(phase, "instance_lost")


def prepare(s: Snapshot, action: Action) -> Change | None:
    """What must be on record before the provider is called, so that a crash during the call is understood."""
    match action:
        case DeleteInstance(phase, reason, message):
            return Change(_status(phase, reason, message), end_leases=lease_cause(phase))
        case CreateInstance():
            columns: dict[str, Any] = {"creating_hash": s.desired_hash, "creating_provider": s.provider}
            if s.phase is not Phase.PROVISIONING:
                columns |= _status(Phase.PROVISIONING, "Creating", "The provider is asked for an instance.")
            return Change(columns)
        case SweepStrays(phase):
            return Change(_status(phase, "SweepingStrays", "What an interrupted create may have left is searched for."))
    return None


def conclude(
    s: Snapshot, observation: Observation, action: Action, outcome: Outcome, *, now: datetime, jitter: float
) -> Change:
    """What the row becomes after ``action``. ``jitter`` is a random number in [0, 1) that spreads retries."""
    if isinstance(outcome, ProviderError):
        return _stumble(s, action, outcome, now, jitter)
    match action:
        case Release(abandoned):
            return _release(s, abandoned)
        case Drain(phase, until):
            message = f"No new leases; those that are out may go on until {until:%Y-%m-%d %H:%M:%S} UTC."
            return Change(
                _status(phase, "Draining", message) | {"draining_since": s.draining_since or now},
                next_reconcile_at=min(until, now + DRAIN_POLL),
            )
        case DeleteInstance(phase, reason, message):
            if isinstance(observation, Unreadable):
                # `get` can't tell, for good; that `delete` succeeded is all that will ever be known.
                return _forget(s, ForgetInstance(phase, reason, message, lost=False), now, jitter)
            wait = timedelta(0) if s.delete_is_final else s.poll
            return Change(_status(phase, reason, message) | _CALL_SUCCEEDED, next_reconcile_at=now + wait)
        case SweepStrays():
            return Change(_NOTHING_CREATING | _CALL_SUCCEEDED, next_reconcile_at=now)
        case CreateInstance():
            assert isinstance(outcome, Instance)
            return _created(s, outcome, now)
        case ForgetInstance():
            return _forget(s, action, now, jitter)
        case Stumble(_, error):
            return _stumble(s, action, error, now, jitter)
        case Settle():
            return _settled(s, observation, action, now)


_NOTHING_CREATING: dict[str, Any] = {"creating_hash": "", "creating_provider": ""}
_CALL_SUCCEEDED: dict[str, Any] = {"call_errors": 0, "error_since": None, "retry_at": None}


def _status(phase: Phase, reason: str, message: str) -> dict[str, Any]:
    return {"phase": phase, "reason": reason, "message": message}


def _located(address: Address | None) -> dict[str, Any]:
    host, port = address or ("", None)
    return {"address": host, "address_port": port}


def _reachable(instance: Instance, s: Snapshot) -> Address | None:
    if instance.state is not InstanceState.RUNNING or not instance.address:
        return None
    return instance.address, instance.port or s.port


def _release(s: Snapshot, abandoned: bool) -> Change:
    if abandoned:
        left = s.provider_id or "an instance that may have been made"
        message = (
            f"Cleanup was skipped: {left} is abandoned. The orphan GC removes it if its provider answers one day; "
            "else it has to be removed by hand."
        )
        note = Note("InstanceAbandoned", "SkipCleanup", message)
    else:
        note = Note("Released", "Deleted", "Nothing of the proxy is left.")
    return Change(notes=(note,), end_leases="proxy_deleted", release=True)


def _created(s: Snapshot, instance: Instance, now: datetime) -> Change:
    address = _reachable(instance, s)
    columns = (
        (
            _status(Phase.PROVISIONING, "AwaitingFirstProbe", "Reachable; no probe has given a verdict yet.")
            if address
            else _status(Phase.PROVISIONING, "InstanceProvisioning", instance.message or "The instance is being made.")
        )
        | _CALL_SUCCEEDED
        | _NOTHING_CREATING
        | _located(address)
        | {
            "provider_id": instance.provider_id,
            "instance_hash": instance.identity.instance_hash,
            "instance_serial": s.instance_serial + 1,
            "failed_hash": "",
            "observed_generation": s.generation,
            "provisioning_since": now,
            "draining_since": None,
        }
    )
    return Change(
        columns,
        notes=(Note("InstanceCreated", "Created", instance.provider_id),),
        provisioned=_provisioned(address, str(columns["reason"]), str(columns["message"])),
        probe=address is not None,
        next_reconcile_at=None if address else now + s.poll,
    )


def _forget(s: Snapshot, action: ForgetInstance, now: datetime, jitter: float) -> Change:
    columns = (
        _status(action.phase, action.reason, action.message)
        | _CALL_SUCCEEDED
        | _located(None)
        | {"provider_id": "", "instance_hash": "", "provisioning_since": None, "draining_since": None}
    )
    retry_at = now
    if s.phase is Phase.PROVISIONING and action.phase is Phase.PROVISIONING:
        # It never got Ready: the next may not either, so the tries are spread out.
        columns["instance_failures"] = s.instance_failures + 1
        retry_at = columns["retry_at"] = now + backoff(TRANSIENT_BACKOFF, s.instance_failures + 1, jitter)
    return Change(
        columns,
        notes=(Note("InstanceLost" if action.lost else "InstanceDeleted", action.reason, s.provider_id),),
        provisioned=_provisioned(None, action.reason, action.message),
        end_leases=lease_cause(action.phase),
        next_reconcile_at=retry_at,
    )


def _settled(s: Snapshot, observation: Observation, action: Settle, now: datetime) -> Change:
    columns = _status(action.phase, action.reason, action.message) | {"observed_generation": s.generation}
    address, provisioned, end_leases = s.address, None, ""
    if s.external or isinstance(observation, Seen):
        address = _reachable(observation.instance, s) if isinstance(observation, Seen) else s.endpoint
        columns |= _CALL_SUCCEEDED | _located(address)
        provisioned = _provisioned(address, action.reason, action.message, external=s.external)
    if address is not None and address != s.address:
        columns["instance_serial"] = s.instance_serial + 1
        if s.address is not None:
            end_leases = "address_changed"
    if action.phase in (Phase.READY, Phase.UNHEALTHY):
        columns |= {"provisioning_since": None, "draining_since": None}
    if action.phase is Phase.READY:
        columns["instance_failures"] = 0
    if action.phase is Phase.PROVISIONING:
        columns["provisioning_since"] = s.provisioning_since or now
    return Change(
        columns,
        provisioned=provisioned,
        end_leases=end_leases,
        probe=address is not None and address != s.address,
        next_reconcile_at=None if action.recheck is None else now + action.recheck,
    )


def _stumble(s: Snapshot, action: Action, error: ProviderError, now: datetime, jitter: float) -> Change:
    errors = s.call_errors + 1
    wait = backoff(BLOCKED_BACKOFF if isinstance(error, Blocked) else TRANSIENT_BACKOFF, errors, jitter)
    if isinstance(error, Unavailable) and error.retry_after is not None:
        wait = max(wait, timedelta(seconds=error.retry_after))
    error_since = s.error_since or now
    columns: dict[str, Any] = {
        "observed_generation": s.generation,
        "call_errors": errors,
        "error_since": error_since,
        "retry_at": now + wait,
    }
    notes: tuple[Note, ...] = ()
    provisioned = None
    phase = Phase.PROVISIONING if isinstance(action, CreateInstance) else getattr(action, "phase", s.phase)
    leaving = phase in (Phase.TERMINATING, Phase.REPLACING)
    if isinstance(error, PermanentError) and not leaving:
        phase = Phase.FAILED
        columns |= {"failed_hash": s.desired_hash, "retry_at": None}
        if isinstance(action, CreateInstance) and not s.creating_hash:
            columns |= (
                _NOTHING_CREATING  # refused at the first try; of an earlier one, whose answer was lost, it says nothing
            )
    columns["phase"] = phase
    lasting = not isinstance(error, Unavailable) or now - error_since >= ERROR_GRACE
    if lasting and phase not in (Phase.READY, Phase.UNHEALTHY):
        columns |= {"reason": error.reason, "message": str(error)}
    elif phase is not s.phase and isinstance(action, Stumble):
        columns |= {"reason": action.meanwhile.reason, "message": action.meanwhile.message}
    if lasting:
        provisioned = Condition("Provisioned", "Unknown", error.reason, str(error))
        if s.known_error != (error.reason, str(error)):
            notes = (Note("ProviderError", error.reason, str(error)),)
    return Change(columns, notes=notes, provisioned=provisioned, next_reconcile_at=columns["retry_at"])


def _provisioned(address: Address | None, reason: str, message: str, *, external: bool = False) -> Condition:
    if address is None:
        return Condition("Provisioned", "False", reason, message)
    return Condition("Provisioned", "True", "External" if external else "InstanceRunning")

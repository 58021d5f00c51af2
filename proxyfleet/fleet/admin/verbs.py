"""What an operator can do with proxies besides editing them: one table behind the buttons and the bulk actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import User
from django.db import transaction

from proxyfleet.fleet import operations
from proxyfleet.fleet.models import Origin, Proxy
from proxyfleet.fleet.operations import NotAllowed
from proxyfleet.fleet.ports import FieldConflict, NotWritten, ports


class Operation(Protocol):
    def __call__(self, proxy_id: int, /, *, actor: str, now: datetime) -> object:
        """Raises NotAllowed, or Proxy.DoesNotExist."""
        ...


def _always(_proxy: Proxy) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    label: str
    icon: str
    done: str
    """What messages and the admin's log say afterwards."""
    run: Operation
    in_cluster: Callable[[Proxy], None] | None = None
    """What is done instead to a proxy of the cluster, whose custom resource says what is wanted of it."""
    consequence: Callable[[Proxy, int], str] | None = None
    """What will happen to a proxy with so many leases out. A verb that has it asks first."""
    offered: Callable[[Proxy], bool] = _always
    """Whether the page of this proxy shows the button."""
    permission: Literal["change", "delete"] = "change"
    log_flag: int = CHANGE


@dataclass(slots=True)
class Outcome:
    """What became of each proxy."""

    done: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def perform(verb: Verb, proxy_ids: Iterable[int], user: User, now: datetime) -> Outcome:
    """Do it to each proxy by itself, with a line in the admin's log; what one refuses does not stop the others."""
    outcome = Outcome()
    for proxy_id in proxy_ids:
        try:
            proxy = Proxy.objects.get(pk=proxy_id)
            if verb.in_cluster is not None and proxy.origin == Origin.CLUSTER:
                verb.in_cluster(proxy)
                _log(verb, proxy, user)
            else:
                with transaction.atomic():
                    verb.run(proxy_id, actor=user.get_username(), now=now)
                    _log(verb, proxy, user)
        except (NotAllowed, NotWritten, FieldConflict) as error:
            outcome.refused.append(str(error))
        except Proxy.DoesNotExist:
            outcome.refused.append(f"the proxy with id {proxy_id} is gone by now")
        else:
            outcome.done.append(str(proxy))
    return outcome


def _log(verb: Verb, proxy: Proxy, user: User) -> None:
    LogEntry.objects.log_actions(
        user_id=user.pk,
        queryset=[proxy],
        action_flag=verb.log_flag,
        change_message=f"{verb.done}.",
        single_object=True,
    )


def _skip_in_cluster(proxy: Proxy) -> None:
    ports.cluster.set_skip_cleanup(proxy)


def _delete_in_cluster(proxy: Proxy) -> None:
    ports.cluster.delete(proxy)


def _probe(proxy_id: int, /, *, actor: str, now: datetime) -> None:  # noqa: ARG001  every verb is called alike
    ports.prober.probe_soon([proxy_id])


def _reconcile(proxy_id: int, /, *, actor: str, now: datetime) -> None:  # noqa: ARG001  every verb is called alike
    operations.reconcile_now(proxy_id, now=now)


def _is_kept(proxy: Proxy) -> bool:
    return proxy.deletion_requested_at is None


def _can_be_cordoned(proxy: Proxy) -> bool:
    return _is_kept(proxy) and not proxy.cordoned


def _can_be_uncordoned(proxy: Proxy) -> bool:
    return _is_kept(proxy) and proxy.cordoned


def _can_be_replaced(proxy: Proxy) -> bool:
    return _is_kept(proxy) and not proxy.is_external


def _can_skip_cleanup(proxy: Proxy) -> bool:
    return not proxy.is_external and not proxy.skip_cleanup


def _drain(proxy: Proxy, leases: int) -> str:
    """How the leases end, and when the rest follows."""
    if not leases:
        return "No lease is out."
    out = "1 lease is out" if leases == 1 else f"{leases} leases are out"
    if proxy.drain_seconds == 0:
        return f"{out} and will be ended at once."
    return f"{out}; what has not ended after {proxy.drain_seconds} s of draining is cut off."


def _what_deletion_does(proxy: Proxy, leases: int) -> str:
    if proxy.deletion_requested_at is not None:
        return "Its deletion was asked for already; nothing changes."
    drain = _drain(proxy, leases)
    if proxy.is_external:
        return f"No new leases. {drain} The proxy itself runs elsewhere and is left alone; only its entry here goes."
    if proxy.skip_cleanup:
        return f"No new leases. {drain} Its cleanup is skipped: the instance is abandoned, and may go on costing money."
    if not proxy.provider_id:
        return f"No new leases. {drain} It has no instance."
    return f"No new leases. {drain} Then the instance {proxy.provider_id} is deleted."


def _what_replacement_does(proxy: Proxy, leases: int) -> str:
    if proxy.is_external:
        return "It is External: what exists elsewhere can't be replaced from here."
    drain = _drain(proxy, leases)
    return f"No new leases meanwhile. {drain} Then a new instance takes the old one's place, at another address."


def _what_skipping_does(proxy: Proxy, _leases: int) -> str:
    if not proxy.provider_id:
        return "It has no instance, so there is nothing to skip yet."
    when = "Now" if proxy.deletion_requested_at is not None else "Once its deletion is asked for"
    return (
        f"{when}, it goes without the instance {proxy.provider_id} being deleted. The orphan GC removes that one if "
        "its provider answers one day; else whoever needs it gone must do it."
    )


VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("probe", "Probe now", "network_check", "Probe asked for", _probe),
        Verb("reconcile", "Reconcile now", "sync", "Reconcile asked for", _reconcile),
        Verb("cordon", "Cordon", "block", "Cordoned", operations.cordon, offered=_can_be_cordoned),
        Verb("uncordon", "Uncordon", "task_alt", "Uncordoned", operations.uncordon, offered=_can_be_uncordoned),
        Verb(
            "replace",
            "Replace",
            "autorenew",
            "Replacement asked for",
            operations.replace,
            consequence=_what_replacement_does,
            offered=_can_be_replaced,
        ),
        Verb(
            "skip-cleanup",
            "Skip cleanup",
            "cleaning_services",
            "Cleanup will be skipped",
            operations.skip_cleanup,
            in_cluster=_skip_in_cluster,
            consequence=_what_skipping_does,
            offered=_can_skip_cleanup,
            permission="delete",
        ),
        Verb(
            "delete",
            "Delete",
            "delete",
            "Deletion asked for",
            operations.request_deletion,
            in_cluster=_delete_in_cluster,
            consequence=_what_deletion_does,
            offered=_is_kept,
            permission="delete",
            log_flag=DELETION,
        ),
    )
}

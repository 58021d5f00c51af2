"""What needs a person: each trouble with its reason, and the one thing to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.urls import reverse

from proxyfleet.fleet.dashboard import SHOWN_OF_EACH, Census, SharedAddress, Trouble, TroubledProxy
from proxyfleet.fleet.models import ProviderState, Proxy
from proxyfleet.fleet.phases import Phase

Person = AbstractBaseUser | AnonymousUser

LIST = "admin:fleet_proxy_changelist"
PHASES: Mapping[Trouble, Sequence[Phase]] = {
    Trouble.FAILED: (Phase.FAILED,),
    Trouble.STUCK: (Phase.TERMINATING,),
    Trouble.UNHEALTHY: (Phase.UNHEALTHY,),
    Trouble.BLOCKED: (Phase.PENDING, Phase.PROVISIONING),
}
COLOURS = {Trouble.FAILED: "danger", Trouble.STUCK: "danger", Trouble.UNHEALTHY: "warning", Trouble.BLOCKED: "warning"}


@dataclass(frozen=True, slots=True)
class Action:
    label: str
    url: str
    post: str = ""
    """The ids to do it to at once; empty: the link leads to a page that asks or shows first."""


@dataclass(frozen=True, slots=True)
class Item:
    trouble: str
    colour: str
    name: str
    url: str
    reason: str
    since: datetime | None = None
    action: Action | None = None


def items(
    census: Census,
    troubled: Sequence[TroubledProxy],
    shared: Sequence[SharedAddress],
    states: Sequence[ProviderState],
    person: Person,
) -> list[Item]:
    """The worst first; a button only for who may press it."""
    return [
        *(_provider(state) for state in states if state.check_ready is False),
        *_proxies(census, troubled, person),
        *(_shared(address, person) for address in shared),
    ]


def _provider(state: ProviderState) -> Item:
    page = reverse("admin:fleet_providerstate_change", args=[state.entry])
    down = [target for target in state.check_targets if not target["ready"]]
    partly = len(down) < len(state.check_targets)
    return Item(
        trouble="Partly down" if partly else "Provider down",
        colour="warning" if partly else "danger",
        name=state.entry,
        url=page,
        reason=f"{state.check_reason}: {state.check_message}" if state.check_message else state.check_reason,
        since=state.check_changed_at,
        action=Action("See its checks", page),
    )


def _proxies(census: Census, troubled: Sequence[TroubledProxy], person: Person) -> Iterator[Item]:
    for trouble in Trouble:
        named = [each.proxy for each in troubled if each.trouble is trouble]
        yield from (_proxy(trouble, proxy, person) for proxy in named)
        more = census.troubles[trouble] - len(named)
        if more > 0 and len(named) == SHOWN_OF_EACH:
            phases = PHASES[trouble]
            query = {"phase__exact": phases[0]} if len(phases) == 1 else {}
            yield Item(trouble.value, COLOURS[trouble], f"{more} more", f"{reverse(LIST)}?{urlencode(query)}", "")


def _proxy(trouble: Trouble, proxy: Proxy, person: Person) -> Item:
    return Item(
        trouble=trouble.value,
        colour=COLOURS[trouble],
        name=str(proxy),
        url=reverse("admin:fleet_proxy_change", args=[proxy.pk]),
        reason=": ".join(filter(None, (proxy.reason, proxy.message))),
        since=proxy.deletion_requested_at if trouble is Trouble.STUCK else proxy.phase_changed_at,
        action=_action(trouble, proxy, person),
    )


def _action(trouble: Trouble, proxy: Proxy, person: Person) -> Action | None:
    may_change = may(person, "fleet.change_proxy")
    match trouble:
        case Trouble.STUCK if not proxy.is_external and not proxy.skip_cleanup:
            return _ask("Skip cleanup", "skip-cleanup", proxy.pk) if may(person, "fleet.delete_proxy") else None
        case _ if not may_change:
            return None
        case Trouble.FAILED:
            return Action("Edit the spec", reverse("admin:fleet_proxy_edit", args=[proxy.pk]))
        case Trouble.UNHEALTHY if proxy.is_external:
            return _do("Probe now", "probe", proxy.pk)
        case Trouble.UNHEALTHY:
            return _ask("Replace", "replace", proxy.pk)
        case _:
            return _do("Try again now", "reconcile", proxy.pk)


def _shared(address: SharedAddress, person: Person) -> Item:
    others = address.count - len(address.names)
    names = ", ".join(address.names) + (f" and {others} more" if others > 0 else "")
    may_replace = address.newest and may(person, "fleet.change_proxy")
    return Item(
        trouble="Shared egress IP",
        colour="warning",
        name=address.egress_ip,
        url=f"{reverse(LIST)}?{urlencode({'q': address.egress_ip})}",
        reason=f"Targets see {address.count} proxies as one: {names}",
        action=_ask("Replace the newest", "replace", address.newest) if may_replace else None,
    )


def _ask(label: str, verb: str, proxy_id: int) -> Action:
    query = urlencode({"ids": proxy_id, "next": reverse("admin:index")})
    return Action(label, f"{reverse('admin:fleet_proxy_do', args=[verb])}?{query}")


def _do(label: str, verb: str, proxy_id: int) -> Action:
    return Action(label, reverse("admin:fleet_proxy_do", args=[verb]), post=str(proxy_id))


def may(person: Person, permission: str) -> bool:
    return isinstance(person, PermissionsMixin) and person.has_perm(permission)

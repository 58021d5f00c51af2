"""What callers get. The OpenAPI document is made from these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self
from urllib.parse import quote
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, RootModel
from pydantic.alias_generators import to_camel

from leasing.allocation import Granted, GrantedProxy
from leasing.api.requests import ModeName, PhaseName
from leasing.models import Lease
from leasing.queries import ProxyDetail
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.phases import Verdict
from proxyfleet.fleet.secrets import Credentials, SecretMissing, credentials_of


class Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, from_attributes=True, frozen=True)

    def body(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


class WhoAmI(Answer):
    ip: str = Field(description="The address that the request came from.")
    headers: dict[str, str] = Field(description="What proxies on the way said of whom they forward for.")


class ProxyUse(Answer):
    """Where a proxy is, and what for."""

    id: str = Field(description="namespace/name")
    ip: str | None = Field(description="Where it listens; an External proxy may have a DNS name.")
    port: int
    url: str | None = Field(description="For the proxy setting of an HTTP client.")
    attributes: dict[str, str]
    egress_ip: str | None = Field(alias="egressIP", description="The address that a target sees, where that is known.")
    phase: PhaseName
    healthy: bool


class LeasedProxy(ProxyUse):
    """What it takes to use a proxy."""

    url: str | None = Field(
        description="For the proxy setting of an HTTP client, with the credentials if the proxy needs some."
    )

    @classmethod
    def of(cls, proxy: Proxy | GrantedProxy, credentials: Credentials | None) -> Self:
        """``credentials``, if it needs some, go into the URL: this is for who has leased it."""
        return cls(**_use_of(proxy, credentials))


class ProxySummary(ProxyUse):
    mode: ModeName
    provider: str | None
    reason: str
    message: str
    cordoned: bool
    max_leases: int
    active_leases: int
    created_at: datetime

    @classmethod
    def of(cls, proxy: Proxy) -> Self:
        return cls(**_summary_of(proxy))


class Condition(Answer):
    type: str
    status: str
    reason: str
    message: str
    last_transition_time: datetime


class LeaseOfProxy(Answer):
    lease_id: UUID = Field(alias="leaseID")
    owner: str = Field(description="Name of the token that took it.")
    client: str
    target: str | None
    created_at: datetime
    expires_at: datetime


class CooldownOfProxy(Answer):
    target: str
    until: datetime


class Event(Answer):
    at: datetime
    kind: str
    reason: str
    message: str
    old_phase: str
    new_phase: str
    actor: str = Field(description="The person or token that asked for it; empty: the product itself.")


class ProxyInDetail(ProxySummary):
    conditions: list[Condition]
    leases: list[LeaseOfProxy] = Field(description="The newest, at most 100.")
    cooldowns: list[CooldownOfProxy] = Field(description="Those that last longest, at most 100.")
    events: list[Event] = Field(description="The newest, at most 20.")

    @classmethod
    def of_detail(cls, detail: ProxyDetail) -> Self:
        return cls(
            **_summary_of(detail.proxy),
            conditions=[Condition.model_validate(condition) for condition in detail.proxy.conditions],
            leases=[_lease_of_proxy(lease) for lease in detail.leases],
            cooldowns=[CooldownOfProxy.model_validate(cooldown) for cooldown in detail.cooldowns],
            events=[Event.model_validate(event) for event in detail.events],
        )


class ProxyPage(Answer):
    items: list[ProxySummary]
    next: str | None = Field(description="URL of the page after this one.")


class LeaseAnswer(Answer):
    lease_id: UUID = Field(alias="leaseID")
    target: str | None
    client: str
    created_at: datetime
    expires_at: datetime
    proxy: LeasedProxy

    @classmethod
    def of(cls, lease: Lease | Granted) -> Self:
        return cls._of(lease, credentials_of([lease.proxy]))

    @classmethod
    def of_each(cls, leases: Sequence[Lease | Granted]) -> list[Self]:
        known = credentials_of([lease.proxy for lease in leases])
        return [cls._of(lease, known) for lease in leases]

    @classmethod
    def _of(cls, lease: Lease | Granted, credentials: Mapping[int, Credentials | SecretMissing]) -> Self:
        known = credentials.get(lease.proxy.id)
        return cls(
            leaseID=lease.id,
            target=lease.target or None,
            client=lease.client,
            created_at=lease.created_at,
            expires_at=lease.expires_at,
            proxy=LeasedProxy.of(lease.proxy, known if isinstance(known, Credentials) else None),
        )


class LeaseList(Answer):
    items: list[LeaseAnswer]

    @classmethod
    def of(cls, leases: Sequence[Lease | Granted]) -> Self:
        return cls(items=LeaseAnswer.of_each(leases))


class Acquired(RootModel[LeaseAnswer | LeaseList]):
    """One lease; or, when the request gave a `count`, a list."""


class ReportAnswer(Answer):
    cooldown_until: datetime | None = Field(description="Until when the proxy rests for the target, if it does.")


class TargetSummary(Answer):
    target: str
    cooling: int = Field(description="Proxies that rest for it now.")
    reports: int = Field(description="Reports of the last hour.")
    success_rate: float | None = Field(description="Share of them that were `ok`; null: there were none.")


class TargetPage(Answer):
    items: list[TargetSummary]
    next: str | None = Field(description="URL of the page after this one.")


class Problem(Answer):
    """An RFC 9457 problem. Programs go by `code`, people by `detail`."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    errors: dict[str, list[str]] | None = Field(
        None, description="With `invalid_request`: what is wrong with each field."
    )
    cause: str | None = Field(None, description="With `lease_ended`: how it ended.")
    ended_at: datetime | None = Field(None, description="With `lease_ended`.")
    matching: int | None = Field(
        None, description="With `no_proxy_available`: proxies that match, each in one of these:"
    )
    unhealthy: int | None = Field(None, description="Not Ready.")
    full: int | None = Field(None, description="Ready, with all leases out.")
    cooling: int | None = Field(None, description="Ready, but resting for the target.")
    draining: int | None = Field(None, description="Cordoned, being replaced or being deleted.")

    def body(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _use_of(proxy: Proxy | GrantedProxy, credentials: Credentials | None = None) -> dict[str, Any]:
    port = proxy.address_port or proxy.port
    host = f"[{proxy.address}]" if ":" in proxy.address else proxy.address
    user = f"{quote(credentials.username, safe='')}:{quote(credentials.password, safe='')}@" if credentials else ""
    return {
        "id": str(proxy),
        "ip": proxy.address or None,
        "port": port,
        "url": f"http://{user}{host}:{port}" if host else None,
        "attributes": proxy.attributes,
        "egress_ip": proxy.egress_ip,
        "phase": proxy.phase,
        "healthy": proxy.current_verdict == Verdict.HEALTHY,
    }


def _summary_of(proxy: Proxy) -> dict[str, Any]:
    load = getattr(proxy, "load", None)
    return {
        **_use_of(proxy),
        "mode": proxy.mode,
        "provider": proxy.provider or None,
        "reason": proxy.reason,
        "message": proxy.message,
        "cordoned": proxy.cordoned,
        "max_leases": proxy.max_leases,
        "active_leases": load.active if load else 0,
        "created_at": proxy.created_at,
    }


def _lease_of_proxy(lease: Lease) -> LeaseOfProxy:
    return LeaseOfProxy(
        leaseID=lease.pk,
        owner=lease.owner,
        client=lease.client,
        target=lease.target or None,
        created_at=lease.created_at,
        expires_at=lease.expires_at,
    )

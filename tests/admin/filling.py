"""A fleet with a past, so that each page of the admin has something to show."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import sin
from typing import Any
from uuid import uuid4

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, User
from django.utils import timezone

from health import memory
from health.results import Measured, Outcome, ProbeResult, Stage
from leasing import access, operations
from leasing.allocation import Wish
from leasing.ids import uuid7
from leasing.models import ApiToken, Cooldown, EndCause, EndedLease, Lease, Report, Result
from leasing.selectors import Selector
from leasing.tests.fleet import make_proxy, publish
from leasing.tokens import Scope
from proxyfleet.fleet import operations as fleet_operations
from proxyfleet.fleet.models import ProviderState, Proxy, ProxyEvent
from proxyfleet.fleet.phases import Phase, Verdict
from proxyfleet.fleet.roles import Role
from proxyfleet.fleet.tests.world import World

CLOUD_INIT = "#cloud-config\nwrite_files: [{path: /etc/squid/password, content: cloud-init-secret-4711}]\n"
CLOUD_INIT_SECRET = "cloud-init-secret-4711"
PASSWORD_HASH = "pbkdf2_sha256$870000$salt-of-the-hash$digest-of-the-hash"

TARGETS = ("shop.example.com", "news.example.org", "api.travel.example", "maps.example.net")
TROUBLE = {
    Phase.UNHEALTHY: ("ProbeFailed", "Timeout: no response through the tunnel within 10 s"),
    Phase.FAILED: ("QuotaExceeded", "gcp-eu: quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1."),
    Phase.PENDING: ("CloudInitError", "the Secret default/user-data does not exist, or lacks its label"),
    Phase.PROVISIONING: ("Creating", "waits for an address"),
    Phase.TERMINATING: ("DeletionRequested", "drains 3 leases, 240 s left"),
    Phase.REPLACING: ("InstanceObsolete", "drains 1 lease, 60 s left"),
}


@dataclass(frozen=True, slots=True)
class Filled:
    """One of each, for the pages of one."""

    proxy: Proxy
    event: ProxyEvent
    lease: Lease
    ended: EndedLease
    cooldown: Cooldown
    report: Report
    token: ApiToken
    token_secret: str
    user: User
    group: Group


def fill(world: World, *, proxies: int = 24) -> Filled:
    """A fleet of the last 26 hours, on the provider entry ``mem`` and two that are gone."""
    now = timezone.now()
    world.now = now - timedelta(hours=26)
    proxy = _old_hand(world)
    _others(proxies)
    token, secret = _tokens(now)
    lease = _leasing(proxy)
    _provider_states(now)
    user = User.objects.create(
        username="vera", password=PASSWORD_HASH, first_name="Vera", last_name="Viewer", email="vera@example.com"
    )
    user.groups.add(Group.objects.get(name=Role.VIEWER))
    LogEntry.objects.log_actions(user.pk, [proxy], CHANGE, "Changed Max leases, Attributes.", single_object=True)
    cooldown = Cooldown.objects.first()
    report = Report.objects.filter(target="shop.example.com").first()
    ended = EndedLease.objects.first()
    event = ProxyEvent.objects.filter(proxy=proxy).first()
    assert cooldown is not None
    assert report is not None
    assert ended is not None
    assert event is not None
    group = Group.objects.get(name=Role.VIEWER)
    return Filled(proxy, event, lease, ended, cooldown, report, token, secret, user, group)


def _old_hand(world: World) -> Proxy:
    """A proxy that has seen everything."""
    proxy = world.declare(
        "crawl-eu-1",
        cloudInit={"inline": CLOUD_INIT},
        attributes={"geo": "eu", "tier": "gold", "crawl.example.com/pool": "shops"},
        drainSeconds=60,
    )
    proxy = world.ready(proxy)
    for hours, verdict, outcome in ((3, Verdict.UNHEALTHY, "Timeout"), (1, Verdict.HEALTHY, "")):
        world.now += timedelta(hours=hours)
        world.judge(proxy, verdict, outcome)
        world.step(proxy)
    world.now += timedelta(hours=2)
    fleet_operations.cordon(proxy.pk, actor="olive", now=world.now)
    fleet_operations.uncordon(proxy.pk, actor="olive", now=world.now + timedelta(minutes=10))
    spec = world.read(proxy).spec.declared() | {"maxLeases": 5}
    fleet_operations.update(proxy.pk, spec, actor="olive", now=world.now + timedelta(minutes=20))
    proxy = world.settle(proxy)
    Proxy.objects.filter(pk=proxy.pk).update(egress_ip="198.51.100.7")
    _probes(proxy)
    return world.read(proxy)


def _probes(proxy: Proxy) -> None:
    now, failing = timezone.now(), range(3 * 12, 5 * 12)
    for slot in range(288):
        ok = slot not in failing
        seconds = {Stage.CONNECT: 0.09 + 0.05 * sin(slot / 20) + (slot % 7) / 300}
        result = ProbeResult(
            Measured(proxy.pk, 1), Outcome.OK if ok else Outcome.TIMEOUT, Stage.RESPONSE, seconds, "" if ok else "late"
        )
        moment = now - timedelta(minutes=5 * (287 - slot))
        memory.keep({proxy.pk: proxy.uid}, [result] * 9, moment)


def _others(count: int) -> None:
    phases = [Phase.READY] * 4 + [phase for phase in Phase if phase is not Phase.READY]
    for number in range(count):
        phase = phases[number % len(phases)]
        reason, message = TROUBLE.get(phase, ("ProbeSucceeded", ""))
        external = number % 11 == 5
        provider = "" if external else ("gcp-eu", "mem", "kvm-home")[number % 3]
        has_instance = phase not in (Phase.PENDING, Phase.FAILED)
        region = ("eu", "us", "ap")[number % 3]
        proxy = make_proxy(
            f"crawl-{region}-{number + 2}",
            phase=phase,
            max_leases=10,
            provider=provider,
            mode="External" if external else "Managed",
            endpoint_host="proxy.partner.example" if external else "",
            origin="cluster" if number % 5 == 2 else "database",
            namespace=("default", "shops")[number % 2],
            address=f"203.0.113.{number + 10}" if has_instance else "",
            address_port=3128 if has_instance else None,
            provider_id=f"{provider}://project/europe-west1-b/proxyfleet-{number}" if provider and has_instance else "",
            reason=reason,
            message=message,
            attributes={"geo": region, "tier": ("gold", "bulk")[number % 2]},
            cordoned=number % 9 == 3,
            health_message=message if phase is Phase.UNHEALTHY else "",
            created_at=timezone.now() - timedelta(hours=7 * number, minutes=3),
            next_reconcile_at=None,
        )
        ProxyEvent.objects.create(
            proxy=proxy,
            proxy_uid=proxy.uid,
            namespace=proxy.namespace,
            name=proxy.name,
            at=timezone.now() - timedelta(minutes=count - number),
            kind="PhaseChanged",
            reason=reason,
            message=message,
            old_phase="Pending",
            new_phase=phase.value,
        )


def _tokens(now: Any) -> tuple[ApiToken, str]:
    new = access.create_token("crawler-shops", [Scope.READ, Scope.LEASE], created_by="olive", now=now)
    access.create_token("ci", [Scope.OPERATE], created_by="olive", now=now)
    ApiToken.objects.filter(name="ci").update(expires_at=now - timedelta(days=1), requests_per_second=20)
    access.create_token("old-crawler", [Scope.LEASE], created_by="olive", now=now)
    ApiToken.objects.filter(name="old-crawler").update(revoked_at=now, last_used_at=now - timedelta(hours=3))
    return ApiToken.objects.get(name="crawler-shops"), new.secret


def _leasing(proxy: Proxy) -> Lease:
    now = timezone.now()
    publish(proxy)
    for number in range(60):
        target, at = TARGETS[number % len(TARGETS)], now - timedelta(minutes=60 - number)
        EndedLease.objects.create(
            id=uuid7(at),
            proxy_uid=proxy.uid,
            namespace=proxy.namespace,
            name=proxy.name,
            owner="crawler-shops",
            client=f"worker-{number % 5}",
            target=target,
            created_at=at,
            ended_at=at + timedelta(seconds=50),
            cause=list(EndCause)[0 if number % 4 else number % len(EndCause)],
        )
        Report.objects.create(
            lease_id=uuid4(),
            proxy_uid=proxy.uid,
            namespace=proxy.namespace,
            name=proxy.name,
            target=target,
            result=list(Result)[number % len(Result)] if number % 3 == 0 else Result.OK,
            at=at,
        )
    wish = Wish(owner="crawler-shops", client="worker-1", target="shop.example.com", selector=Selector())
    operations.acquire(wish, count=3, ttl_seconds=3000, now=now)
    for number, rests in enumerate(Proxy.objects.filter(phase="Ready")[:5]):
        for target in TARGETS[: number + 1]:
            Cooldown.objects.create(proxy=rests, target=target, until=now + timedelta(minutes=7 * (number + 1)))
    lease = Lease.objects.first()
    assert lease is not None
    return lease


def _provider_states(now: Any) -> None:
    ProviderState.objects.update_or_create(
        entry="mem",
        defaults={
            "check_ready": True,
            "check_reason": "Healthy",
            "check_changed_at": now - timedelta(days=2),
            "check_targets": [_target("rack-1", "Healthy", now), _target("rack-2", "Healthy", now)],
            "orphans_swept_at": now - timedelta(minutes=3),
            "orphans": [
                {
                    "provider_id": "mem://rack-1/proxyfleet-0123456789abcdef0123456789abcdef-01234567",
                    "namespace": "default",
                    "name": "crawl-eu-9",
                    "proxy_uid": str(uuid4()),
                    "created_at": (now - timedelta(hours=5)).isoformat(),
                    "action": "deleted",
                    "message": "",
                }
            ],
        },
    )
    ProviderState.objects.update_or_create(
        entry="kvm-home",
        defaults={
            "check_ready": False,
            "check_reason": "PoolNotFound",
            "check_message": "1 of 2 targets are not ready; host2: there is no storage pool 'default'",
            "check_changed_at": now - timedelta(minutes=42),
            "check_targets": [
                _target("host1", "Healthy", now),
                _target("host2", "PoolNotFound", now, "there is no storage pool 'default'"),
            ],
        },
    )


def _target(name: str, reason: str, now: Any, message: str = "") -> dict[str, Any]:
    since = (now - timedelta(minutes=42)).isoformat()
    ready = reason == "Healthy"
    return {"name": name, "ready": ready, "reason": reason, "message": message, "lastTransitionTime": since}

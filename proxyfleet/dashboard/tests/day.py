"""A fleet that has been running for a day, with the troubles that one has."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta
from typing import Any

from health.latency import BOUNDS
from leasing.book import DatabaseLeaseBook
from leasing.ids import uuid7
from leasing.models import Cooldown, Lease, ProxyLoad
from proxyfleet.dashboard.models import FleetMinute
from proxyfleet.fleet.models import ProviderState, Proxy
from proxyfleet.fleet.phases import Phase, Verdict

ENTRIES = ("here", "gcp-eu", "kvm-berlin", "pve-lab")
MINUTE = timedelta(minutes=1)


def add_fleet(now: datetime, count: int = 200) -> list[Proxy]:
    """``count`` proxies over ENTRIES, nearly all Ready, with leases out; the rest of them in every kind of trouble."""
    long_ago = now - timedelta(days=3)
    base: dict[str, Any] = {"created_at": long_ago, "phase_changed_at": long_ago, "next_reconcile_at": None}
    proxies = [
        Proxy(
            name=f"crawl-{number:03}",
            namespace="crawl",
            provider=ENTRIES[number % len(ENTRIES)],
            provider_id=f"{ENTRIES[number % len(ENTRIES)]}://proxy-{number}",
            address=f"10.0.{number // 250}.{number % 250 + 1}",
            address_port=3128,
            egress_ip=f"198.51.{100 + number // 250}.{number % 250 + 1}",
            instance_serial=1,
            probed_serial=1,
            phase=Phase.READY,
            verdict=Verdict.HEALTHY,
            reason="ProbeSucceeded",
            attributes={"region": "eu"},
            **base,
        )
        for number in range(count)
    ]
    _trouble(proxies, now)
    made = Proxy.objects.bulk_create(proxies)
    _lease(made, now)
    _check(now)
    return made


def _trouble(proxies: list[Proxy], now: datetime) -> None:
    def change(place: int, hours: float, **columns: Any) -> None:
        proxy = proxies[place]
        for column, value in {"phase_changed_at": now - timedelta(hours=hours), **columns}.items():
            setattr(proxy, column, value)

    if len(proxies) < 8:
        return
    change(
        0,
        2,
        phase=Phase.FAILED,
        reason="InvalidRequest",
        message="placement.machineType: no machine type n9-huge in europe-west1-b",
    )
    for place in (1, 2):
        change(
            place,
            0.6 * place,
            phase=Phase.UNHEALTHY,
            verdict=Verdict.UNHEALTHY,
            reason="TunnelRefused",
            message="the proxy answered CONNECT with 502",
        )
    change(
        3,
        5,
        phase=Phase.TERMINATING,
        reason="Unavailable",
        message="pve-lab: no route to 192.0.2.10",
        deletion_requested_at=now - timedelta(hours=5),
        error_since=now - timedelta(hours=5),
    )
    change(
        4,
        0.3,
        phase=Phase.PROVISIONING,
        reason="QuotaExceeded",
        message="QUOTA_EXCEEDED: CPUS in europe-west1, limit 24",
        egress_ip=None,
    )
    change(5, 0.01, phase=Phase.PROVISIONING, reason="AwaitingFirstProbe", message="", egress_ip=None)
    proxies[6].egress_ip = proxies[7].egress_ip
    proxies[7].cordoned = True


def _lease(proxies: list[Proxy], now: datetime) -> None:
    chance = random.Random(7)
    book = DatabaseLeaseBook()
    for proxy in proxies:
        book.publish(proxy.pk, leasable=proxy.is_leasable, max_leases=10, generation=1)
    leases = [
        Lease(
            id=uuid7(now),
            proxy=proxy,
            owner="crawler",
            client="spider-1",
            target="shop.example",
            created_at=now,
            expires_at=now + timedelta(minutes=5),
        )
        for proxy in proxies
        if proxy.is_leasable
        for _ in range(chance.randint(2, 6))
    ]
    Lease.objects.bulk_create(leases)
    counts: dict[int, int] = {}
    for lease in leases:
        counts[lease.proxy_id] = counts.get(lease.proxy_id, 0) + 1
    for pk, active in counts.items():
        ProxyLoad.objects.filter(pk=pk).update(active=active)
    Cooldown.objects.bulk_create(
        Cooldown(proxy=proxy, target="shop.example", until=now + timedelta(minutes=9)) for proxy in proxies[10:23]
    )


def _check(now: datetime) -> None:
    for entry in ENTRIES:
        targets = [_target("pve1", now), _target("pve2", now, "no answer within 15 s")] if entry == "pve-lab" else []
        down = bool(targets)
        ProviderState.objects.create(
            entry=entry,
            check_ready=not down,
            check_reason="Timeout" if down else "Healthy",
            check_message="1 of 2 targets are not ready; pve2: no answer within 15 s" if down else "",
            check_targets=targets,
            check_changed_at=now - timedelta(hours=5),
        )


def _target(name: str, now: datetime, message: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "ready": not message,
        "reason": "Timeout" if message else "Healthy",
        "message": message,
        "lastTransitionTime": f"{now:%Y-%m-%dT%H:%M:%SZ}",
    }


def add_day(now: datetime, proxies: int = 200) -> None:
    """Minutes of a day: busier at noon, with a bad hour and one in which nothing ran."""
    chance = random.Random(7)
    newest = now.replace(second=0, microsecond=0) - MINUTE
    rows = []
    for ago in range(24 * 60):
        minute = newest - ago * MINUTE
        busy = 1 + 0.6 * math.sin((minute.hour + minute.minute / 60 - 6) / 24 * 2 * math.pi)
        bad = 300 <= ago < 360
        away = 700 <= ago < 760
        counts = [0] * (len(BOUNDS) + 1)
        for _ in range(0 if away else proxies // 10):
            seconds = chance.lognormvariate(-1.6 + 0.2 * busy + 0.8 * bad, 0.5)
            counts[next(place for place, bound in enumerate(BOUNDS) if bound >= seconds)] += 1
        leases = int(chance.gauss(90, 6) * busy)
        rows.append(
            FleetMinute(
                minute=minute,
                proxies=None if away else proxies,
                ready=None if away else int(proxies * (0.83 if bad else 0.98)) - chance.randint(0, 2),
                leases=leases,
                reports_ok=int(leases * 0.8),
                reports_failed=int(leases * (0.35 if bad else 0.04)) + chance.randint(0, 2),
                phase_changes=chance.randint(0, 6) if bad else int(chance.random() < 0.08),
                probe_counts=counts if any(counts) else [],
            )
        )
    FleetMinute.objects.bulk_create(rows)

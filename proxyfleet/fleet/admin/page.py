"""What the page of a proxy shows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import yaml

from proxyfleet.conf import settings
from proxyfleet.fleet.admin.badges import badge, health_badge, state_badges
from proxyfleet.fleet.admin.chart import chart_of
from proxyfleet.fleet.admin.probing import egress_badges
from proxyfleet.fleet.admin.timeline import timeline_of
from proxyfleet.fleet.models import Origin, Proxy
from proxyfleet.fleet.operations import OwnedByTheCluster
from proxyfleet.fleet.ports import LastProbe, ports
from proxyfleet.fleet.templatetags.ages import age

LEASES_SHOWN = COOLDOWNS_SHOWN = 10
CONDITION_COLOURS = {"True": "success", "False": "danger", "Unknown": "default"}


def page_of(proxy: Proxy, now: datetime, *, show: str, before: str) -> dict[str, Any]:
    """The template's context. ``show`` and ``before`` choose the page of the history."""
    of_cluster = proxy.origin == Origin.CLUSTER
    cooldowns = ports.leases.cooldowns(proxy.pk, now, limit=COOLDOWNS_SHOWN + 1)
    return {
        "proxy": proxy,
        "now": now,
        "badges": [state_badges(proxy), health_badge(proxy), *egress_badges(proxy)],
        "facts": _facts(proxy),
        "health_facts": _health_facts(proxy, ports.probes.last_each([proxy.uid]).get(proxy.uid), now),
        "kubectl": f"kubectl describe px {proxy.name} --namespace {proxy.namespace}" if of_cluster else "",
        "chart": chart_of(proxy, now),
        "conditions": [
            {
                "type": condition["type"],
                "status": badge(condition["status"], CONDITION_COLOURS.get(condition["status"], "default")),
                "reason": condition["reason"],
                "message": condition["message"],
                "since": datetime.fromisoformat(condition["lastTransitionTime"]),
            }
            for condition in proxy.conditions
        ],
        "spec": yaml.safe_dump(_without_secrets(proxy), sort_keys=False, allow_unicode=True),
        "timeline": timeline_of(proxy, now, show=show, before=before),
        "cooldowns": cooldowns[:COOLDOWNS_SHOWN],
        "more_cooldowns": len(cooldowns) > COOLDOWNS_SHOWN,
        "active_leases": ports.leases.active(proxy.pk, now),
        "leases": ports.leases.outstanding(proxy.pk, now, limit=LEASES_SHOWN),
    }


def _facts(proxy: Proxy) -> list[tuple[str, Any]]:
    """Label and value; what is empty is left out, but for what everyone looks for."""
    always = [
        ("Reason", proxy.reason),
        ("Message", proxy.message),
        ("Address", f"{proxy.address}:{proxy.address_port}" if proxy.address else ""),
        ("Egress IP", proxy.egress_ip),
        ("Provider ID", proxy.provider_id),
        ("Instance hash", proxy.instance_hash),
        ("Generation", f"{proxy.generation}, observed {proxy.observed_generation}"),
        ("Phase since", proxy.phase_changed_at),
        ("Created", proxy.created_at),
        ("Origin", proxy.origin),
        ("UID", proxy.uid),
    ]
    sometimes = [
        (
            "Read-only",
            OwnedByTheCluster(proxy) if proxy.origin == Origin.CLUSTER and not settings().cluster_sync else "",
        ),
        ("Deletion asked for", proxy.deletion_requested_at),
        ("Draining since", proxy.draining_since),
        ("Errors since", proxy.error_since),
        ("Failed calls in a row", proxy.call_errors),
        ("Failed instances in a row", proxy.instance_failures),
        ("Next try", proxy.retry_at),
        ("Next look", proxy.next_reconcile_at),
        ("Held by a worker until", proxy.claim_expires_at),
    ]
    return always + [(label, value) for label, value in sometimes if value]


def _health_facts(proxy: Proxy, last: LastProbe | None, now: datetime) -> list[tuple[str, Any]]:
    is_current = proxy.probed_serial == proxy.instance_serial
    recent = f"{age(last.at, now)} ago: {last.outcome} in {last.milliseconds} ms" if last else ""
    return [
        ("Last probe", recent),
        ("Outcome at the last change", proxy.last_outcome if is_current else ""),
        ("Message", proxy.health_message if is_current else ""),
        ("Good probes in a row", f"{proxy.probe_successes if is_current else 0} of {proxy.success_threshold}"),
        ("Failed probes in a row", f"{proxy.probe_failures if is_current else 0} of {proxy.failure_threshold}"),
        ("Verdict since", proxy.health_changed_at),
    ]


def _without_secrets(proxy: Proxy) -> dict[str, Any]:
    declared = proxy.spec.declared()
    if proxy.cloud_init_inline is not None:
        declared["cloudInit"]["inline"] = f"({len(proxy.cloud_init_inline.encode())} bytes, not shown)"
    return {name: value for name, value in _without_blanks(declared).items() if value not in ({}, [])}


def _without_blanks(declared: dict[str, Any]) -> dict[str, Any]:
    """An empty text says no more than none."""
    return {
        name: _without_blanks(value) if isinstance(value, dict) else value
        for name, value in declared.items()
        if value not in ("", [], None)
    }

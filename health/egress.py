"""What targets see of a proxy: its address, and what it says of its user. Told when it changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Min

from proxyfleet.fleet.claims import event_of
from proxyfleet.fleet.egress import sharing_egress
from proxyfleet.fleet.models import EventKind, Proxy, ProxyEvent
from proxyfleet.fleet.phases import Verdict


@dataclass(frozen=True, slots=True)
class Seen:
    """What was known of a proxy before a result."""

    verdict: Verdict
    egress_ip: str | None
    leaking_headers: str


def egress_events(changed: Sequence[tuple[Proxy, Seen]], now: datetime) -> list[ProxyEvent]:
    """Events of proxies that were found to share an address, or to leak their user's, and were not known to before.

    Their rows are written already.
    """
    events = [
        event_of(
            proxy,
            EventKind.ADDRESS_LEAKED,
            now,
            reason="HeaderAdded",
            message=f"The proxy tells targets whom it works for, in: {proxy.leaking_headers}",
        )
        for proxy, before in changed
        if proxy.leaking_headers and proxy.leaking_headers != before.leaking_headers
    ]
    moved = [proxy for proxy, before in changed if proxy.egress_ip and proxy.egress_ip != before.egress_ip]
    if not moved:
        return events
    shared = {
        str(row["egress_ip"]): row
        for row in sharing_egress(among={str(proxy.egress_ip) for proxy in moved})
        .values("egress_ip")
        .annotate(proxies=Count("pk"), first=Min("pk"), last=Max("pk"))
    }
    # However many share it: one is named, and how many there are.
    examples = Proxy.objects.only("namespace", "name").in_bulk(
        {pk for row in shared.values() for pk in (row["first"], row["last"])}
    )
    for proxy in moved:
        if (row := shared.get(str(proxy.egress_ip))) is None:
            continue
        other = examples.get(row["last"] if row["first"] == proxy.pk else row["first"])
        more = f" and {row['proxies'] - 2} more" if row["proxies"] > 2 else ""
        message = f"Targets see it as {proxy.egress_ip}, like {other}{more}."
        events.append(event_of(proxy, EventKind.EGRESS_SHARED, now, reason="SameAddress", message=message))
    return events

"""Which targets turn which proxies away: what the admin's pages of targets show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Count

from leasing.models import Cooldown, Report, Result
from leasing.queries import TARGET_WINDOW

# The ones with the most resting proxies first. The index of recent reports has all that is counted.
_TROUBLE = """
with recent as (
  select target, count(*) as reports,
    count(*) filter (where result = 'ok') as succeeded,
    count(*) filter (where result in ('blocked', 'rate_limited')) as refused
  from leasing_report where at > %(since)s and target <> '' and target like %(like)s group by target
), cooling as (
  select target, count(*) as proxies from leasing_cooldown
  where until > %(now)s and target like %(like)s group by target
), trouble as (
  select target, coalesce(proxies, 0) as cooling, coalesce(reports, 0) as reports,
    coalesce(succeeded, 0) as succeeded, coalesce(refused, 0) as refused
  from recent full join cooling using (target)
)
select target, cooling, reports, succeeded, refused from trouble
where %(after)s::text is null or (-cooling, -reports, target) > (-%(cooling)s, -%(reports)s, %(after)s)
order by -cooling, -reports, target limit %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A target now, and the reports on it within ``TARGET_WINDOW``."""

    target: str
    cooling: int
    """Proxies that rest for it."""
    reports: int
    succeeded: int
    refused: int
    """Rate limited or blocked."""

    @property
    def success_rate(self) -> float | None:
        return self.succeeded / self.reports if self.reports else None


def trouble(now: datetime, *, part: str = "", after: Trouble | None = None, limit: int) -> list[Trouble]:
    """The targets whose name contains ``part``, from ``after`` on."""
    literal = part.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    values: dict[str, Any] = {
        "since": now - TARGET_WINDOW,
        "now": now,
        "like": f"%{literal}%",
        "after": after.target if after else None,
        "cooling": after.cooling if after else 0,
        "reports": after.reports if after else 0,
        "limit": limit,
    }
    with connection.cursor() as cursor:
        cursor.execute(_TROUBLE, values)
        return [Trouble(*row) for row in cursor.fetchall()]


def results(target: str, now: datetime) -> Mapping[Result, int]:
    """How the reports on ``target`` within ``TARGET_WINDOW`` went; a result that none had is missing."""
    recent = Report.objects.filter(target=target, at__gt=now - TARGET_WINDOW).order_by()
    return {Result(result): count for result, count in recent.values_list("result").annotate(Count("id"))}


def resting(target: str, now: datetime, *, limit: int) -> list[Cooldown]:
    """The cooldowns for ``target``, the longest first."""
    cooling = Cooldown.objects.filter(target=target, until__gt=now).select_related("proxy")
    return list(cooling.defer("proxy__cloud_init_inline").order_by("-until", "-id")[:limit])


def reports(target: str, *, limit: int) -> list[Report]:
    """The newest first."""
    return list(Report.objects.filter(target=target).order_by("-id")[:limit])

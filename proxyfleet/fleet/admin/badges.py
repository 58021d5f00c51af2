"""How states look: one colour for each meaning, everywhere."""

from __future__ import annotations

from django.template.loader import render_to_string
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe

from proxyfleet.fleet.models import EventKind, ProviderState, Proxy, ProxyEvent
from proxyfleet.fleet.phases import Phase, Verdict

PHASE_COLOURS = {
    Phase.PENDING: "default",
    Phase.PROVISIONING: "info",
    Phase.READY: "success",
    Phase.UNHEALTHY: "warning",
    Phase.REPLACING: "info",
    Phase.TERMINATING: "default",
    Phase.FAILED: "danger",
}
VERDICT_COLOURS = {Verdict.UNKNOWN: "default", Verdict.HEALTHY: "success", Verdict.UNHEALTHY: "danger"}

EVENT_COLOURS = {
    EventKind.PROVIDER_ERROR: "danger",
    EventKind.INSTANCE_LOST: "danger",
    EventKind.INSTANCE_ABANDONED: "warning",
    EventKind.ORPHAN_DELETED: "warning",
    EventKind.DELETION_REQUESTED: "warning",
    EventKind.SKIP_CLEANUP_REQUESTED: "warning",
    EventKind.CORDONED: "warning",
    EventKind.INSTANCE_CREATED: "info",
}


def badge(text: str, colour: str, title: str = "") -> SafeString:
    rendered = render_to_string("unfold/helpers/label.html", {"text": text, "type": colour, "label_title": title})
    return mark_safe(rendered)  # noqa: S308  the template escapes


def state_badges(proxy: Proxy) -> SafeString:
    """The phase, and what an operator asked for that changes how it is to be read."""
    badges = [badge(proxy.phase, PHASE_COLOURS[Phase(proxy.phase)])]
    if proxy.cordoned:
        badges.append(badge("cordoned", "warning", "No new leases"))
    if proxy.deletion_requested_at is not None and proxy.phase != Phase.TERMINATING:
        badges.append(badge("being deleted", "danger"))
    if proxy.skip_cleanup:
        badges.append(badge("cleanup skipped", "warning", "Its instance will be abandoned"))
    return format_html_join(" ", "{}", ((each,) for each in badges))


def health_badge(proxy: Proxy) -> SafeString:
    verdict = proxy.current_verdict
    return badge(verdict.value, VERDICT_COLOURS[verdict], proxy.health_message)


def event_badge(event: ProxyEvent) -> SafeString:
    """What happened; of a change of phase, both."""
    if event.new_phase:
        return badge(f"{event.old_phase} → {event.new_phase}", PHASE_COLOURS[Phase(event.new_phase)])
    return badge(event.get_kind_display(), EVENT_COLOURS.get(EventKind(event.kind), "default"))


def readiness_badge(state: ProviderState | None) -> SafeString:
    """What the last check of a provider entry said of it."""
    if state is None or state.check_ready is None:
        return badge("not checked yet", "default")
    return badge(state.check_reason, "success" if state.check_ready else "danger", state.check_message)

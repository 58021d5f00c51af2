"""How states look: one colour for each meaning, everywhere."""

from __future__ import annotations

from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe

from proxyfleet.fleet.models import Proxy, Verdict
from proxyfleet.fleet.phases import Phase

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


def badge(text: str, colour: str, title: str = "") -> SafeString:
    rendered = render_to_string("unfold/helpers/label.html", {"text": text, "type": colour, "label_title": title})
    return mark_safe(rendered)  # noqa: S308  the template escapes


def phase_badge(phase: str) -> SafeString:
    return badge(phase, PHASE_COLOURS.get(Phase(phase), "default"))


def health_badge(proxy: Proxy) -> SafeString:
    verdict = proxy.current_verdict
    return badge(verdict.value, VERDICT_COLOURS[verdict], proxy.health_message)

"""Is it the proxies that fail, or what they are probed with? The breaker of one probe target, as pure functions.

The first failure beyond a proxy that was not unhealthy begins to be weighed: from then on it counts what is heard of
each proxy that is probed with this target, wherever it comes from. When enough of them have failed at one stage, and
hardly any has come through, the target is the suspect and not they: the breaker opens, and what was counted against
them meanwhile is taken back. When others come through, the failures are the proxies' own, and the weighing ends.

Open, it weighs the other way round: the first success begins, enough of them close it.

A fleet at rest weighs nothing, nor does a target that is down altogether: what does not change need not be kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from health.results import Key, Outcome, ProbeResult, Stage
from health.verdicts import Counters

FEWEST = 3
"""Proxies that must have failed. Of one or two that fail nobody can tell what is to blame: the proxies are."""
MOST_NEEDED = 50
"""However large the fleet: with as many, picked by nothing but their slots, most of it fails."""
NEEDED_SHARE = 10
"""One in so many of the fleet must have failed, within these bounds."""
SUSPECT_SHARE = 0.8
"""Of the proxies that were heard of since the first failure."""
ANSWERS_SHARE = 0.5
"""A target that at least so many come through to is not down."""
ENOUGH = 4
"""When so many times the needed number were heard of and it is neither, it is nothing that a breaker is for."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The last that was heard of one proxy."""

    proxy_id: int
    instance_serial: int
    stage: Stage | None
    """Where it failed beyond the proxy; None: it came through. CONNECT stands for all that is the proxy's own."""
    until_ms: int
    """When it will have been probed again: by then this is old."""
    before: Counters = field(default_factory=Counters)
    """What counted for or against the proxy before this."""

    @property
    def is_failure(self) -> bool:
        return self.stage is not None


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What is held against one target."""

    is_open: bool = False
    evidence: Mapping[int, Heard] = field(default_factory=lambda: MappingProxyType({}))
    """By proxy: since the first failure or, when open, since the first success."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The breaker opened."""

    stage: Stage
    failures: tuple[Heard, ...]
    """What was counted against proxies since the first of these failures is to be taken back."""
    heard: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The target answers again."""


def blame(result: ProbeResult[Key]) -> Stage | None:
    """Where a probe failed, if beyond the proxy; ``Stage.CONNECT`` for all that is the proxy's own, None for a success.

    A proxy that was reached and consented is out of it. One that answers CONNECT with 5xx says that the target is to
    blame (RFC 9110, 15.6), with 4xx that it does not want to; one that hangs up says nothing, and is blamed itself. A
    silence after CONNECT can be the one as well as the other: that most of a fleet falls silent at once tells.
    """
    if result.is_ok:
        return None
    match result.stage, result.outcome:
        case Stage.TUNNEL, Outcome.TUNNEL_REFUSED if (result.status or 0) >= 500:
            return Stage.TUNNEL
        case Stage.TUNNEL, Outcome.TIMEOUT:
            return Stage.TUNNEL
        case Stage.TLS, _:
            return Stage.TLS
        case Stage.RESPONSE, Outcome.PROXY_AUTH_REQUIRED:
            return Stage.CONNECT
        case Stage.RESPONSE, Outcome.PROTOCOL_ERROR if Stage.TLS not in result.seconds:
            return Stage.CONNECT  # plain http: it is the proxy that speaks
        case Stage.RESPONSE, _:
            return Stage.RESPONSE
    return Stage.CONNECT


def needed(fleet: int) -> int:
    """How many of ``fleet`` proxies have to fail."""
    return min(max(FEWEST, -(-fleet // NEEDED_SHARE)), MOST_NEEDED)


def hear(before: Suspicion, heard: Heard, *, fleet: int, now_ms: int) -> tuple[Suspicion, Opened | Closed | None]:
    """What is held against the target once this is known, too; the very same object when it makes no difference.

    ``fleet`` is the number of proxies that are probed with this target and are not unhealthy.
    """
    return _hear_open(before, heard, fleet, now_ms) if before.is_open else _hear_closed(before, heard, fleet, now_ms)


def _hear_closed(before: Suspicion, heard: Heard, fleet: int, now_ms: int) -> tuple[Suspicion, Opened | Closed | None]:
    evidence = _with(before.evidence, heard, now_ms)
    enough = needed(fleet)
    failures = tuple(each for each in evidence.values() if each.is_failure)
    if not failures or fleet < FEWEST:
        return (Suspicion() if before.evidence else before), None
    stage, failed = Counter(each.stage for each in failures).most_common(1)[0]
    assert stage is not None, "they are failures"
    if failed >= max(enough, SUSPECT_SHARE * len(evidence)):
        return Suspicion(is_open=True), Opened(stage, failures, len(evidence))
    came_through = len(evidence) - len(failures)
    answers = len(evidence) >= enough and came_through > ANSWERS_SHARE * len(evidence)
    if answers or len(evidence) >= ENOUGH * enough:
        return Suspicion(), None
    return replace(before, evidence=evidence), None


def _hear_open(before: Suspicion, heard: Heard, fleet: int, now_ms: int) -> tuple[Suspicion, Opened | Closed | None]:
    evidence = _with(before.evidence, heard, now_ms)
    enough = max(1, min(needed(fleet), fleet))
    came_through = sum(not each.is_failure for each in evidence.values())
    if not came_through:
        return (Suspicion(is_open=True) if before.evidence else before), None
    if came_through >= max(enough, ANSWERS_SHARE * len(evidence)):
        return Suspicion(), Closed()
    is_down = len(evidence) >= enough and came_through <= (1 - SUSPECT_SHARE) * len(evidence)
    if is_down or len(evidence) >= ENOUGH * enough:
        return Suspicion(is_open=True), None
    return replace(before, evidence=evidence), None


def _with(evidence: Mapping[int, Heard], heard: Heard, now_ms: int) -> Mapping[int, Heard]:
    """The latest of each proxy, without what is old or says nothing about the target."""
    kept = {pk: each for pk, each in evidence.items() if each.until_ms > now_ms}
    earlier = kept.pop(heard.proxy_id, None)
    if heard.stage is Stage.CONNECT:
        return kept
    if earlier is not None and earlier.is_failure and earlier.instance_serial == heard.instance_serial:
        # Still the same series of failures: to be taken back to where it began.
        heard = replace(heard, before=earlier.before)
    return {**kept, heard.proxy_id: heard}

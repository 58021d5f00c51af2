from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from health.results import Outcome, ProbeResult, Stage
from health.suspicion import FEWEST, MOST_NEEDED, Closed, Heard, Opened, Suspicion, blame, hear, needed
from health.verdicts import Counters
from proxyfleet.fleet.phases import Verdict

HEALTHY = Counters(Verdict.HEALTHY, successes=1)
TLS = {Stage.CONNECT: 0.1, Stage.TUNNEL: 0.1, Stage.TLS: 0.1}
BEYOND = [Stage.TUNNEL, Stage.TLS, Stage.RESPONSE]


def heard(pk: int, stage: Stage | None = None, *, until: int = 10**9, **fields: Any) -> Heard:
    return Heard(pk, 1, stage, until, **{"before": HEALTHY} | fields)


class Target:
    """A target, as told of it one result at a time."""

    def __init__(self, fleet: int) -> None:
        self.fleet = fleet
        self.suspicion = Suspicion()
        self.turns: list[Opened | Closed] = []

    def hear(self, *results: Heard, now: int = 0) -> Suspicion:
        for each in results:
            self.suspicion, turn = hear(self.suspicion, each, fleet=self.fleet, now_ms=now)
            self.turns += [turn] if turn else []
        return self.suspicion


@pytest.mark.parametrize(
    ("stage", "outcome", "fields", "blamed"),
    [
        (Stage.RESPONSE, Outcome.OK, {}, None),
        (Stage.CONNECT, Outcome.CONNECT_REFUSED, {}, Stage.CONNECT),
        (Stage.CONNECT, Outcome.CONNECT_FAILED, {}, Stage.CONNECT),
        (Stage.CONNECT, Outcome.TIMEOUT, {}, Stage.CONNECT),
        (Stage.CONNECT, Outcome.CREDENTIALS_MISSING, {}, Stage.CONNECT),
        (Stage.CONNECT, Outcome.PROTOCOL_ERROR, {}, Stage.CONNECT),
        (Stage.TUNNEL, Outcome.PROXY_AUTH_REQUIRED, {"status": 407}, Stage.CONNECT),
        (Stage.TUNNEL, Outcome.PROTOCOL_ERROR, {}, Stage.CONNECT),
        (Stage.TUNNEL, Outcome.TUNNEL_REFUSED, {"status": 403}, Stage.CONNECT),
        (Stage.TUNNEL, Outcome.TUNNEL_REFUSED, {}, Stage.CONNECT),
        (Stage.TUNNEL, Outcome.TUNNEL_REFUSED, {"status": 503}, Stage.TUNNEL),
        (Stage.TUNNEL, Outcome.TIMEOUT, {}, Stage.TUNNEL),
        (Stage.TLS, Outcome.TLS_FAILED, {"seconds": TLS}, Stage.TLS),
        (Stage.TLS, Outcome.TIMEOUT, {"seconds": TLS}, Stage.TLS),
        (Stage.RESPONSE, Outcome.BAD_STATUS, {"seconds": TLS, "status": 503}, Stage.RESPONSE),
        (Stage.RESPONSE, Outcome.PROTOCOL_ERROR, {"seconds": TLS}, Stage.RESPONSE),
        (Stage.RESPONSE, Outcome.TIMEOUT, {"seconds": TLS}, Stage.RESPONSE),
        (Stage.RESPONSE, Outcome.BAD_STATUS, {"status": 503}, Stage.RESPONSE),
        (Stage.RESPONSE, Outcome.TIMEOUT, {}, Stage.RESPONSE),
        (Stage.RESPONSE, Outcome.PROTOCOL_ERROR, {}, Stage.CONNECT),
        (Stage.RESPONSE, Outcome.PROXY_AUTH_REQUIRED, {"status": 407}, Stage.CONNECT),
    ],
)
def test_who_is_to_blame(stage: Stage, outcome: Outcome, fields: dict[str, Any], blamed: Stage | None) -> None:
    assert blame(ProbeResult(1, outcome, stage, **{"seconds": {}} | fields, message="")) is blamed


@pytest.mark.parametrize(
    ("fleet", "number"), [(1, 3), (3, 3), (30, 3), (31, 4), (100, 10), (500, 50), (10_000, MOST_NEEDED)]
)
def test_how_many_are_needed(fleet: int, number: int) -> None:
    assert needed(fleet) == number


@settings(deadline=None)
@given(fleet=st.integers(FEWEST, 2000), stage=st.sampled_from(BEYOND))
def test_a_target_that_goes_down_is_found_after_the_needed_number(fleet: int, stage: Stage) -> None:
    target = Target(fleet)
    assert target.hear(*(heard(pk) for pk in range(fleet))) == Suspicion(), "at rest nothing is kept"
    failures = [heard(pk, stage) for pk in range(needed(fleet))]
    target.hear(*failures[:-1])
    assert not target.turns
    target.hear(failures[-1])
    assert target.turns == [Opened(stage, tuple(failures), len(failures))]
    # Down altogether, it costs no write.
    assert target.hear(*(heard(pk, stage) for pk in range(fleet))) == Suspicion(is_open=True)
    target.hear(*(heard(pk) for pk in range(needed(fleet))))
    assert target.turns[1:] == [Closed()]
    assert target.suspicion == Suspicion()


@settings(deadline=None)
@given(fleet=st.integers(0, FEWEST - 1), stages=st.lists(st.sampled_from(BEYOND), max_size=30))
def test_a_fleet_of_one_or_two_can_not_tell(fleet: int, stages: list[Stage]) -> None:
    target = Target(fleet)
    target.hear(*(heard(number % max(fleet, 1), stage) for number, stage in enumerate(stages)))
    assert target.suspicion == Suspicion()
    assert not target.turns


def test_one_proxy_that_fails_again_and_again_opens_nothing() -> None:
    target = Target(100)
    target.hear(*(heard(1, Stage.TLS) for _ in range(1000)))
    assert not target.turns


@settings(max_examples=50, deadline=None)
@given(fleet=st.integers(40, 400), bad=st.floats(0, 0.2), seed=st.integers())
def test_proxies_that_fail_while_most_come_through_are_to_blame(fleet: int, bad: float, seed: int) -> None:
    """Spread among the others, as their slots are: the breaker stays closed, and what is weighed stays small."""
    rng = random.Random(seed)
    failing = set(rng.sample(range(fleet), int(fleet * bad)))
    target = Target(fleet)
    opened = 0
    for _ in range(3):
        for pk in rng.sample(range(fleet), fleet):
            suspicion = target.hear(heard(pk, Stage.TLS if pk in failing else None))
            assert len(suspicion.evidence) < 4 * needed(fleet)
            opened += suspicion.is_open
    # A run of bad luck among few may open it, once in a long while; the next that come through close it.
    assert opened <= fleet * 3 * 0.1


@settings(deadline=None)
@given(st.integers(3, 300), st.data())
def test_failures_at_different_stages_are_not_one_fault(fleet: int, data: st.DataObject) -> None:
    target = Target(fleet)
    for pk in range(fleet):
        target.hear(heard(pk, BEYOND[pk % 3]))
    assert not target.turns


def test_what_is_the_proxys_own_is_no_evidence_against_the_target() -> None:
    target = Target(10)
    target.hear(*(heard(pk, Stage.CONNECT) for pk in range(10)))
    assert target.suspicion == Suspicion()
    target.hear(heard(1, Stage.TLS), heard(2, Stage.TLS))
    assert set(target.suspicion.evidence) == {1, 2}
    target.hear(heard(1, Stage.CONNECT))
    assert set(target.suspicion.evidence) == {2}, "it died meanwhile; it must not be excused for it"
    target.hear(heard(3, Stage.TLS), heard(4, Stage.TLS))
    [opened] = target.turns
    assert isinstance(opened, Opened)
    assert {each.proxy_id for each in opened.failures} == {2, 3, 4}


def test_failures_that_are_hours_apart_are_not_at_once() -> None:
    target = Target(5)
    for pk in range(5):
        target.hear(heard(pk, Stage.TLS, until=pk * 100_000 + 40_000), now=pk * 100_000)
    assert not target.turns


def test_a_lone_bad_proxy_is_not_excused_when_the_target_goes_down_later() -> None:
    target = Target(10)
    target.hear(heard(7, Stage.TLS), *(heard(pk) for pk in range(6)))
    assert target.suspicion == Suspicion(), "the others came through"
    target.hear(*(heard(pk, Stage.TLS) for pk in range(3)))
    [opened] = target.turns
    assert isinstance(opened, Opened)
    assert 7 not in {each.proxy_id for each in opened.failures}


def test_a_series_of_failures_is_taken_back_to_its_begin() -> None:
    target = Target(3)
    target.hear(heard(1, Stage.TLS, before=HEALTHY))
    target.hear(heard(1, Stage.TLS, before=Counters(Verdict.HEALTHY, failures=1)))
    target.hear(heard(2, Stage.TLS), heard(3, Stage.TLS))
    [opened] = target.turns
    assert isinstance(opened, Opened)
    assert {each.before for each in opened.failures} == {HEALTHY}


def test_a_target_that_answers_some_stays_suspect() -> None:
    target = Target(10)
    target.hear(*(heard(pk, Stage.TLS) for pk in range(3)))
    for pk in range(200):
        target.hear(heard(pk % 10, None if pk % 10 == 9 else Stage.TLS))
    assert target.suspicion.is_open


def test_of_a_fleet_that_has_shrunk_to_one_proxy_one_success_is_enough() -> None:
    target = Target(10)
    target.hear(*(heard(pk, Stage.TLS) for pk in range(3)))
    target.fleet = 1
    target.hear(heard(1))
    assert target.turns[1:] == [Closed()]


RESULTS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from([None, *Stage]), st.integers(0, 20_000)), max_size=200)


@settings(deadline=None)
@given(fleet=st.integers(0, 40), results=RESULTS)
def test_whatever_is_heard(fleet: int, results: list[tuple[int, Stage | None, int]]) -> None:
    """It opens only on enough failures, at one stage beyond the proxy, of proxies heard of within their interval."""
    target, now = Target(fleet), 0
    last: dict[int, tuple[Stage | None, int]] = {}
    for pk, stage, passed in results:
        now += passed
        last[pk] = stage, now
        before, turns = target.suspicion, len(target.turns)
        after = target.hear(heard(pk, stage, until=now + 40_000), now=now)
        assert all(each.stage is not Stage.CONNECT for each in after.evidence.values())
        if turns == len(target.turns):
            assert after.is_open is before.is_open
            continue
        turn = target.turns[-1]
        assert after == Suspicion(is_open=isinstance(turn, Opened))
        if isinstance(turn, Opened):
            failed = [each for each in turn.failures if each.stage is turn.stage]
            assert turn.stage in BEYOND
            assert len(failed) >= max(needed(fleet), 0.8 * turn.heard)
            assert all(last[each.proxy_id][0] is each.stage for each in turn.failures)
            assert all(now - last[each.proxy_id][1] < 40_000 for each in turn.failures)
        else:
            assert stage is None, "a success closes it"

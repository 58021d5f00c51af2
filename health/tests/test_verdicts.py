from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from health.verdicts import Counters, Thresholds
from proxyfleet.fleet.phases import Verdict

THRESHOLDS = st.builds(Thresholds, success=st.integers(1, 5), failure=st.integers(1, 5))
RESULTS = st.lists(st.booleans(), max_size=40)


def run(results: list[bool], thresholds: Thresholds, counters: Counters = Counters()) -> Counters:  # noqa: B008  frozen
    for ok in results:
        counters = counters.after(ok=ok, thresholds=thresholds)
    return counters


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ("", Verdict.UNKNOWN),
        ("+", Verdict.UNKNOWN),
        ("++", Verdict.HEALTHY),
        ("--", Verdict.UNKNOWN),
        ("---", Verdict.UNHEALTHY),
        ("+-+--+", Verdict.UNKNOWN),
        ("++--", Verdict.HEALTHY),
        ("++--+--", Verdict.HEALTHY),
        ("++---", Verdict.UNHEALTHY),
        ("---+", Verdict.UNHEALTHY),
        ("---++", Verdict.HEALTHY),
    ],
)
def test_consecutive_results_make_the_verdict(results: str, verdict: Verdict) -> None:
    assert run([sign == "+" for sign in results], Thresholds(success=2, failure=3)).verdict is verdict


@settings(deadline=None)
@given(RESULTS, THRESHOLDS, st.booleans())
def test_a_proxy_that_stays_as_it_is_changes_nothing(results: list[bool], thresholds: Thresholds, ok: bool) -> None:
    settled = run([*results, *[ok] * 5], thresholds)
    assert settled.verdict is (Verdict.HEALTHY if ok else Verdict.UNHEALTHY)
    assert settled.after(ok=ok, thresholds=thresholds) == settled


@settings(deadline=None)
@given(RESULTS, THRESHOLDS)
def test_verdict_is_that_of_the_latest_long_enough_run(results: list[bool], thresholds: Thresholds) -> None:
    expected, streak, previous = Verdict.UNKNOWN, 0, None
    for ok in results:
        streak = streak + 1 if ok is previous else 1
        previous = ok
        if streak >= (thresholds.success if ok else thresholds.failure):
            expected = Verdict.HEALTHY if ok else Verdict.UNHEALTHY
    assert run(results, thresholds).verdict is expected


def test_lowered_threshold_counts_at_the_next_result() -> None:
    counters = run([False] * 4, Thresholds(failure=9), Counters(Verdict.HEALTHY))
    assert counters.after(ok=False, thresholds=Thresholds(failure=2)) == Counters(Verdict.UNHEALTHY, failures=2)

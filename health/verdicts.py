"""From single results to a verdict: consecutive results against thresholds, as one pure function."""

from __future__ import annotations

from dataclasses import dataclass

from proxyfleet.fleet.phases import Verdict


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How many consecutive results change a verdict, each at least 1."""

    success: int = 1
    failure: int = 3


@dataclass(frozen=True, slots=True)
class Counters:
    """A proxy's verdict and the results in a row that speak for the next one. A new address starts from ``Counters()``.

    At most one of the two counts is above zero, and neither exceeds its threshold: a proxy that stays as it is, in
    either verdict, keeps equal counters and costs no write.
    """

    verdict: Verdict = Verdict.UNKNOWN
    successes: int = 0
    failures: int = 0

    def after(self, *, ok: bool, thresholds: Thresholds) -> Counters:
        """The counters once one more result is known."""
        if ok:
            successes = min(self.successes + 1, thresholds.success)
            verdict = Verdict.HEALTHY if successes == thresholds.success else self.verdict
            return Counters(verdict, successes=successes)
        failures = min(self.failures + 1, thresholds.failure)
        verdict = Verdict.UNHEALTHY if failures == thresholds.failure else self.verdict
        return Counters(verdict, failures=failures)

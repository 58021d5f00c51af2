from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from proxyfleet.fleet.templatetags.ages import age

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3_599, "59 min"),
        (3_600, "1 h"),
        (86_399, "23 h"),
        (86_400 * 40, "40 d"),
    ],
)
def test_an_age_is_told_by_its_largest_unit(seconds: float, shown: str) -> None:
    moment = NOW - timedelta(seconds=seconds)
    assert age(moment, NOW) == age(NOW, moment) == shown

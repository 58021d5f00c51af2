from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from proxyfleet.dashboard.charts import STEP, STEPS, Series, Value, begin_of_day, draw

BEGIN = datetime(2026, 5, 1, 12, 10, tzinfo=UTC)


def values(**at: Value) -> list[Value]:
    known = {int(step[1:]): value for step, value in at.items()}
    return [known.get(step) for step in range(STEPS)]


def path(**at: Value) -> str:
    return draw("k", "T", "ms", [Series("A", "calm", values(**at))], BEGIN, top=100).series[0].path


def test_the_last_step_holds_the_last_minute() -> None:
    for now in (datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC), datetime(2026, 5, 1, 12, 9, 59, tzinfo=UTC)):
        end = begin_of_day(now) + STEPS * STEP
        assert end - STEP <= now - timedelta(minutes=1) < end
        assert begin_of_day(now).minute % 10 == 0


def test_a_line_stops_where_nothing_is_known() -> None:
    assert path(s0=100, s1=50, s3=0, s4=25) == "M0.5 0L1.5 50M3.5 100L4.5 75"


def test_a_step_that_is_alone_can_be_seen() -> None:
    assert path(s7=50) == "M7 50h1"
    assert path(s143=50) == "M143 50h1"


def test_what_is_above_the_axis_stays_in_the_picture() -> None:
    assert path(s1=150) == "M1 0h1"


@pytest.mark.parametrize(
    ("highest", "labels"),
    [
        (0, ["0", "1", "2", "3", "4"]),
        (0.3, ["0", "0.1", "0.2", "0.3", "0.4"]),
        (4, ["0", "1", "2", "3", "4"]),
        (4.1, ["0", "2", "4", "6", "8"]),
        (9, ["0", "2.5", "5", "7.5", "10"]),
        (1577, ["0", "500", "1000", "1500", "2000"]),
    ],
)
def test_an_axis_has_round_numbers(highest: float, labels: list[str]) -> None:
    chart = draw("k", "T", "ms", [Series("A", "calm", values(s0=highest))], BEGIN)
    assert [tick.label for tick in chart.up] == labels


def test_hours_are_where_they_belong() -> None:
    chart = draw("k", "T", "ms", [Series("A", "calm", values())], BEGIN)
    assert [tick.label for tick in chart.across] == ["16:00", "20:00", "00:00", "04:00", "08:00", "12:00"]
    assert chart.across[0].at == pytest.approx(100 * (3 * 6 + 5) / 144)


def test_words_and_table_say_the_same() -> None:
    chart = draw("k", "T", "ms", [Series("A", "calm", values(s0=10, s1=30, s143=20))], BEGIN)
    assert chart.summary == "A: 20 ms last, lowest 10 ms at 12:10, highest 30 ms at 12:20."
    assert chart.table[-1] == ("12:00", "20 ms"), "the mean of what is known of the hour"
    assert chart.table[0] == ("12:00", "20 ms")
    assert chart.table[1] == ("11:00", "not known")
    assert json.loads(chart.values)["series"][0][:3] == ["10 ms", "30 ms", "not known"]


def test_nothing_known_is_an_empty_chart() -> None:
    chart = draw("k", "T", "ms", [Series("A", "calm", values())], BEGIN)
    assert chart.is_empty
    assert chart.summary == "A: nothing is known."

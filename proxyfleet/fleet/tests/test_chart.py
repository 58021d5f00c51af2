"""The day of a proxy, as numbers and as a picture."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from proxyfleet.fleet.admin.chart import Chart, draw
from proxyfleet.fleet.ports import ProbeSlot

END = datetime(2026, 5, 4, 12, tzinfo=UTC)
BEGIN = END - timedelta(hours=24)


def hour(number: float) -> datetime:
    return BEGIN + timedelta(hours=number)


def chart(
    *changes: tuple[datetime, str, str],
    created: datetime = BEGIN,
    phase: str = "Ready",
    slots: tuple[ProbeSlot, ...] = (),
) -> Chart:
    return draw(created, phase, changes, slots, begin=BEGIN, end=END)


def shown(of: Chart) -> list[tuple[str, float, float]]:
    return [(stretch.phase, round(stretch.left, 2), round(stretch.width, 2)) for stretch in of.stretches]


def test_without_a_change_it_was_all_the_time_what_it_is() -> None:
    of = chart(created=BEGIN - timedelta(days=9))
    assert shown(of) == [("Ready", 0, 100)]
    assert (of.ready, of.ready_percent) == (1, "100 %")


def test_changes_divide_the_day() -> None:
    of = chart((hour(6), "Ready", "Unhealthy"), (hour(12), "Unhealthy", "Ready"))
    assert shown(of) == [("Ready", 0, 25), ("Unhealthy", 25, 25), ("Ready", 50, 50)]
    assert of.ready_percent == "75.00 %"
    assert of.phases == ["Ready", "Unhealthy"]


def test_before_it_was_declared_there_is_nothing() -> None:
    of = chart((hour(18), "Pending", "Ready"), created=hour(12))
    assert shown(of) == [("Pending", 50, 25), ("Ready", 75, 25)]
    assert of.ready == 0.5


def test_nearly_all_is_not_all() -> None:
    of = chart((hour(12), "Ready", "Unhealthy"), (hour(12) + timedelta(seconds=1), "Unhealthy", "Ready"))
    assert of.ready_percent == "99.99 %"


def test_one_that_is_declared_just_now() -> None:
    of = chart(created=END, phase="Pending")
    assert (shown(of), of.ready) == ([], None)


def test_the_curve_is_interrupted_where_no_probe_went_well() -> None:
    slots = (
        ProbeSlot(hour(0), 5, 0, 100),
        ProbeSlot(hour(0.1), 5, 0, 200),
        ProbeSlot(hour(0.2), 0, 5, None),
        ProbeSlot(hour(12), 5, 0, 150),
    )
    of = chart(slots=slots)
    assert of.curves == ["0.0,60.0 4.0,0.0", "480.0,30.0 480.0,30.0"]
    assert (of.ceiling, of.quickest, of.median, of.slowest) == (200, 100, 150, 200)
    assert (of.good, of.failed) == (15, 5)


def test_without_a_memory_of_probes_there_is_no_curve() -> None:
    of = chart()
    assert (of.curves, of.good, of.failed) == ([], 0, 0)

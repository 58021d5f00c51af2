from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from proxyfleet.celery import Every, app


def test_what_ran_last_in_the_future_is_due_again_within_its_interval() -> None:
    """The clock was set back: beat keeps on disk when it last did what."""
    every = Every(30)
    assert every.is_due(timezone.now() + timedelta(hours=5)).next <= 30
    assert every.is_due(timezone.now() - timedelta(seconds=31)).is_due
    assert not every.is_due(timezone.now()).is_due


def test_the_whole_schedule_is_of_this_kind() -> None:
    assert {type(item["schedule"]) for item in app.conf.beat_schedule.values()} == {Every}

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from health import prompt
from health.results import Measured
from health.schedule import epoch_ms, next_slot_ms
from health.tests.fleet import add_proxies
from health.turns import CLAIM, Due, Turn, TurnLost, begin, end, next_slot, probeable, settle, take
from proxyfleet.fleet.models import PromptProbe, ProviderState, Proxy

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def must_begin(now: datetime, entry: str = "external") -> Turn:
    turn = begin(entry, now)
    assert turn is not None
    return turn


def ids(taken: list[Due]) -> list[int]:
    return [due.proxy.pk for due in taken]


def slots(taken: list[Due]) -> dict[Measured, int | None]:
    return {due.key: due.slot_ms for due in taken}


def served(now: datetime, entry: str = "external") -> list[int]:
    """The ids of what a turn takes, and probes in no time."""
    turn = begin(entry, now)
    if turn is None:
        return []
    taken = take(turn, now, running={})
    prompt.answered([due.proxy.pk for due in taken if due.asked], turn.token)
    end(turn, unserved=[], leaving={})
    return ids(taken)


@pytest.mark.parametrize("interval", [1, 7, 30, 3600, 86_400])
def test_postgresql_computes_the_same_slots(interval: int) -> None:
    add_proxies(50, health_interval_seconds=interval)
    for now in (NOW, NOW + timedelta(milliseconds=1), NOW + timedelta(days=999, seconds=0.5)):
        for proxy in Proxy.objects.annotate(slot_ms=next_slot(now)):
            assert proxy.slot_ms == next_slot_ms(proxy.uid, interval, now)


def test_every_slot_is_served_once_whatever_the_ticks() -> None:
    proxies = add_proxies(40, health_interval_seconds=30) + add_proxies(10, health_interval_seconds=7)
    assert len(served(NOW)) == 50
    ticks = [NOW + timedelta(seconds=seconds) for seconds in (0, 1, 2, 3, 3.001, 9, 20, 21, 29, 30, 90, 91, 100)]
    for previous, now in pairwise(ticks):
        expected = {
            proxy.pk
            for proxy in proxies
            if next_slot_ms(proxy.uid, proxy.health_interval_seconds, previous) <= epoch_ms(now)
        }
        assert Counter(served(now)) == Counter(expected)


def test_one_turn_at_a_time() -> None:
    add_proxies(5)
    first = must_begin(NOW)
    later = NOW + timedelta(seconds=29)
    assert begin("external", later) is None
    end(first, unserved=[], leaving={})
    assert begin("external", later) is not None


def test_entries_do_not_wait_for_each_other() -> None:
    add_proxies(1)
    [here] = add_proxies(1, mode="Managed", provider="here", provider_id="here://x")
    must_begin(NOW)
    assert served(NOW, "here") == [here.pk]


def test_a_slow_probe_delays_nobody_elses_next_one() -> None:
    slow, *others = add_proxies(6, health_interval_seconds=120, health_timeout_seconds=120)
    turn, taken = must_begin(NOW), Counter[int]()
    running: dict[Measured, int | None] = {}
    for seconds in range(0, 360, 10):
        now = NOW + timedelta(seconds=seconds)
        found = take(turn, now, running=running)
        taken.update(ids(found))
        running |= {key: slot for key, slot in slots(found).items() if key == Measured.of(slow)}
    assert taken[slow.pk] == 1, "it runs all the while"
    assert {taken[other.pk] for other in others} <= {3, 4}


def test_a_dead_worker_keeps_the_turn_for_half_a_minute_and_loses_no_slot() -> None:
    proxies = add_proxies(9, health_interval_seconds=86_400)
    turn = must_begin(NOW)
    assert len(take(turn, NOW, running={})) == 9
    assert begin("external", NOW + CLAIM - timedelta(seconds=1)) is None
    # Nothing was told of any result: what had been taken up is due again, be its next slot a day away.
    assert sorted(served(NOW + CLAIM)) == sorted(proxy.pk for proxy in proxies)
    with pytest.raises(TurnLost):
        take(turn, NOW + CLAIM, running={})
    assert not end(turn, unserved=[], leaving={})


def test_what_was_served_before_a_worker_died_is_not_served_again() -> None:
    add_proxies(40)
    turn = must_begin(NOW)
    running = slots(take(turn, NOW, running={}))
    assert len(running) == 40
    # All but one have a result; the oldest slot without one is where the next turn begins.
    key, slot = max(running.items(), key=lambda each: each[1] or 0)
    later = NOW + timedelta(seconds=1)
    taken = take(turn, later, running={key: slot})
    again = served(later + CLAIM)
    assert key.proxy_id in again
    due_since = [pk for pk in again if pk not in {key.proxy_id, *ids(taken)}]
    for proxy in Proxy.objects.filter(pk__in=due_since):
        assert next_slot_ms(proxy.uid, 30, later) <= epoch_ms(later + CLAIM)


def test_a_turn_that_shows_signs_of_life_is_kept() -> None:
    add_proxies(3, health_interval_seconds=3600)
    turn = must_begin(NOW)
    running = slots(take(turn, NOW, running={}))
    for seconds in range(10, 300, 10):
        assert take(turn, NOW + timedelta(seconds=seconds), running=running) == []
        assert begin("external", NOW + timedelta(seconds=seconds)) is None


def test_what_was_not_begun_stays_due() -> None:
    add_proxies(9, health_interval_seconds=30)
    assert len(served(NOW)) == 9
    later = NOW + timedelta(seconds=30)
    turn = must_begin(later)
    taken = take(turn, later, running={})
    end(turn, unserved=[due.slot_ms for due in taken[6:]], leaving={})
    assert served(later) == ids(taken[6:])


def test_what_runs_on_when_a_turn_ends_is_left_alone_until_it_is_settled() -> None:
    slow, other = add_proxies(2, health_interval_seconds=30, health_timeout_seconds=30)
    turn = must_begin(NOW)
    take(turn, NOW, running={})
    key = Measured.of(slow)
    end(turn, unserved=[], leaving={key: NOW + timedelta(seconds=100)})
    assert served(NOW + timedelta(seconds=60)) == [other.pk]
    settle(turn, [key])
    assert ProviderState.objects.get().probes_left_running == []
    assert sorted(served(NOW + timedelta(seconds=90))) == [slow.pk, other.pk]


def test_what_ran_on_in_a_worker_that_died_is_due() -> None:
    slow, _ = add_proxies(2, health_interval_seconds=86_400, health_timeout_seconds=30)
    turn = must_begin(NOW)
    take(turn, NOW, running={})
    end(turn, unserved=[], leaving={Measured.of(slow): NOW + timedelta(seconds=40)})
    assert served(NOW + timedelta(seconds=39)) == []
    assert served(NOW + timedelta(seconds=41)) == [slow.pk]
    assert served(NOW + timedelta(seconds=42)) == []


def test_a_new_instance_does_not_wait_for_the_probe_of_its_predecessor() -> None:
    [proxy] = add_proxies(1)
    turn = must_begin(NOW)
    running = slots(take(turn, NOW, running={}))
    prompt.ask([proxy.pk])
    assert take(turn, NOW, running=running) == []
    Proxy.objects.update(instance_serial=2)
    assert ids(take(turn, NOW, running=running)) == [proxy.pk]


def test_a_thousand_reports_are_one_probe_and_one_more_while_it_runs() -> None:
    [proxy] = add_proxies(1, health_interval_seconds=86_400)
    served(NOW)
    assert [prompt.ask([proxy.pk]) for _ in range(1000)].count([proxy.pk]) == 1
    turn = must_begin(NOW)
    running = slots(take(turn, NOW, running={}))
    assert [key.proxy_id for key in running] == [proxy.pk]
    assert [prompt.ask([proxy.pk]) for _ in range(1000)].count([proxy.pk]) == 1
    assert take(turn, NOW, running=running) == []
    prompt.answered([proxy.pk], turn.token)
    assert ids(take(turn, NOW, running={})) == [proxy.pk]
    prompt.answered([proxy.pk], turn.token)
    assert take(turn, NOW, running={}) == []
    assert not PromptProbe.objects.exists()


def test_a_prompt_probe_that_died_with_its_worker_is_made_by_the_next() -> None:
    [proxy] = add_proxies(1, health_interval_seconds=86_400)
    served(NOW)
    prompt.ask([proxy.pk])
    assert len(take(must_begin(NOW), NOW, running={})) == 1
    assert served(NOW + CLAIM) == [proxy.pk]
    assert not PromptProbe.objects.exists()


def test_who_is_asked_for_comes_first_and_may_be_gone_or_unreachable() -> None:
    proxies = add_proxies(9)
    [unreachable] = add_proxies(1, address="", address_port=None)
    assert prompt.ask([proxies[7].pk, unreachable.pk, 10**9]) == [proxies[7].pk, unreachable.pk]
    taken = take(must_begin(NOW), NOW, running={})
    assert ids(taken)[0] == proxies[7].pk
    assert len(taken) == 9
    Proxy.objects.all().delete()
    assert not PromptProbe.objects.exists()


def test_a_clock_that_was_set_back_does_not_stop_the_probes() -> None:
    proxies = add_proxies(3)
    assert len(served(NOW)) == 3
    earlier = NOW - timedelta(hours=1)
    assert set(served(earlier)) == {proxy.pk for proxy in proxies}
    assert served(earlier) == []
    assert served(earlier - timedelta(seconds=2)) == [], "another worker, whose clock is a little behind"
    # Also while a turn is held, by a worker that may be dead, until an hour from now.
    must_begin(NOW)
    assert set(served(earlier - timedelta(hours=1))) == {proxy.pk for proxy in proxies}


def test_a_tick_that_finds_nothing_due_writes_nothing() -> None:
    add_proxies(3, health_interval_seconds=86_400, health_timeout_seconds=10)
    served(NOW)
    with CaptureQueriesContext(connection) as queries:
        assert begin("external", NOW) is None
    assert {query["sql"].split()[0] for query in queries} == {"SELECT"}


def test_who_is_probed() -> None:
    [external] = add_proxies(1)
    [of_a_lost_entry] = add_proxies(1, mode="Managed", provider="gone", provider_id="gone://x")
    add_proxies(1, address="", address_port=None)
    add_proxies(1, deletion_requested_at=NOW)
    assert set(probeable().values_list("pk", flat=True)) == {external.pk, of_a_lost_entry.pk}
    assert set(served(NOW)) == {external.pk, of_a_lost_entry.pk}

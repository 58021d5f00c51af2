"""A judge that finds nothing is worth nothing: what it must find, and what it must not."""

from __future__ import annotations

import pytest

from tests.storm.judge import Count, Span, Told, Unrest, false_refusals, granted_while_not_leasable, over_grants


def told(begin: float, end: float, *, proxy: str = "a", address: str = "1") -> Told:
    """Asked for a second before and over a second after."""
    return Told(f"{begin}", proxy, address, begin - 1, begin, end, end + 1)


@pytest.mark.parametrize(
    ("during", "most"), [(Span(-5, -1), 0), (Span(0, 1), 1), (Span(2.5, 2.6), 2), (Span(3, 9), 1), (Span(0, 9), 2)]
)
def test_the_most_at_once_during_a_span(during: Span, most: int) -> None:
    count = Count([Span(0, 3), Span(2, 5), Span(7, 7)])
    assert count.most_during(during) == most
    assert count.most == 2


def test_too_many_leases_at_once_are_found() -> None:
    assert over_grants([told(0, 3), told(2, 4)], limit=1)
    assert over_grants([told(0, 3), told(2, 4)], limit=2) == []
    assert over_grants([told(0, 2), told(2, 4)], limit=1) == []


def test_leases_of_one_instance_are_not_those_of_the_next() -> None:
    assert over_grants([told(0, 3), told(2, 4, address="2")], limit=1) == []


def test_a_refusal_is_false_when_a_slot_was_free_all_along() -> None:
    leases = [told(0, 3), told(10, 13)]
    assert false_refusals([Span(5, 8)], leases, slots=1) == [Span(5, 8)]
    assert false_refusals([Span(3.5, 8)], leases, slots=1) == []
    assert false_refusals([Span(1, 2)], leases, slots=2) == [Span(1, 2)]


def test_a_lease_on_what_was_not_to_be_leased_is_found() -> None:
    unrest = Unrest()
    unrest.not_leasable["a"].append(Span(2, 5))
    assert granted_while_not_leasable([told(4, 9)], unrest)
    assert granted_while_not_leasable([told(2.5, 9), told(5.5, 9), told(4, 9, proxy="b")], unrest) == []

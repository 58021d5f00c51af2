from __future__ import annotations

import json

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leasing.selectors import MAX_LENGTH, InvalidSelector, Selector

WORDS = st.sampled_from(["a", "b", "geo", "in", "notin", "example.com/tier", "%s", "ä"])
VALUES = st.one_of(WORDS, st.just(""))
OPERATORS = st.sampled_from(["=", "==", "!="])
SETS = st.lists(VALUES, min_size=1, max_size=3).filter(lambda values: values != [""]).map(",".join)
SPACE = st.sampled_from(["", " "])
REQUIREMENTS = st.one_of(
    WORDS,
    WORDS.map("!{}".format),
    st.builds("{}{}{}{}".format, WORDS, SPACE, OPERATORS, VALUES),
    st.builds("{} {}{}({})".format, WORDS, st.sampled_from(["in", "notin"]), SPACE, SETS),
)
SELECTORS = st.lists(REQUIREMENTS, max_size=4).map(",".join)
ATTRIBUTES = st.dictionaries(WORDS, VALUES, max_size=4)


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("", {}, None),
        ("geo=eu", {"geo": "eu"}, {"geo": "us"}),
        ("geo == eu", {"geo": "eu"}, {}),
        ("geo!=eu", {}, {"geo": "eu"}),
        ("geo in (eu,us)", {"geo": "us"}, {"geo": "asia"}),
        ("geo notin (eu, us)", {}, {"geo": "us"}),
        ("geo", {"geo": ""}, {}),
        ("!geo", {"tier": "a"}, {"geo": ""}),
        ("geo=", {"geo": ""}, {"geo": "eu"}),
        ("geo=eu,tier in (a,b),!slow", {"geo": "eu", "tier": "b"}, {"geo": "eu", "tier": "b", "slow": "yes"}),
        ("in in (in)", {"in": "in"}, {"in": "out"}),
        ("geo=eu,geo=us", None, {"geo": "eu"}),
    ],
)
def test_selectors_mean_what_they_mean_in_kubernetes(
    text: str, matching: dict[str, str] | None, other: dict[str, str] | None
) -> None:
    selector = Selector.parse(text)
    assert matching is None or selector.matches(matching)
    assert other is None or not selector.matches(other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("geo=eu,", "character 8: expected a key, found the end"),
        ("geo eu", "character 5: expected '=', '==', '!=', 'in', 'notin' or ',', found 'eu'"),
        ("geo in ()", "character 9: expected a value, found ')'"),
        ("geo in (eu", "character 11: expected ')', found the end"),
        ("size > 3", "character 6: '>' is not allowed"),
        ("=eu", "character 1: expected a key, found '='"),
        ("a=\x00", "character 3: '\\x00' is not allowed"),
        ("a=b\x1c", "character 4: '\\x1c' is not allowed"),
        ("a=b\u2003", "character 4: '\\u2003' is not allowed"),
        ("a" * (MAX_LENGTH + 1), "is longer than 1024 characters"),
    ],
)
def test_an_error_says_where(text: str, message: str) -> None:
    with pytest.raises(InvalidSelector) as caught:
        Selector.parse(text)
    assert str(caught.value) == message


@given(st.text(max_size=60))
def test_every_text_is_a_selector_or_a_clear_error(text: str) -> None:
    problem = "character "
    try:
        Selector.parse(text).matches({})
    except InvalidSelector as error:
        problem = str(error)
    assert problem.startswith("character ")


@given(ATTRIBUTES)
def test_a_map_asks_for_each_of_its_items(wanted: dict[str, str]) -> None:
    selector = Selector.from_map(wanted)
    assert selector.matches(wanted | {"more": "yes"})
    for key in wanted:
        assert not selector.matches(wanted | {key: "else"})


@pytest.mark.django_db
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(SELECTORS, ATTRIBUTES)
def test_the_database_and_python_agree(text: str, attributes: dict[str, str]) -> None:
    selector = Selector.parse(text)
    condition, params = selector.sql("attributes")
    with connection.cursor() as cursor:
        cursor.execute(
            f"select {condition} from (select %(given)s::jsonb as attributes) proxy",
            params | {"given": json.dumps(attributes)},
        )
        assert cursor.fetchone() == (selector.matches(attributes),)

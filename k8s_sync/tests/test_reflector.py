"""The reflector on scripted streams: everything that may happen to a watch, one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from k8s_sync import reflector
from k8s_sync.kinds import PROXY
from k8s_sync.reflector import Reflector
from k8s_sync.tests.scripted import CUT, HOLD, Script, Step, bookmark, error, event, obj, serving
from proxyfleet.local.processes import wait_until

SECONDS = 20
START = (10, [obj("a", 9)])


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "FIRST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(reflector, "LONGEST_DELAY_SECONDS", 0.05)


class Followed:
    """A reflector that follows a script, and what it told."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.changed: list[str] = []
        self.listings = 0

    def listed(self) -> None:
        self.listings += 1

    @contextmanager
    def run(self, silence_seconds: float) -> Iterator[Reflector]:
        with serving(self.script) as api:
            following = Reflector(
                api, PROXY, changed=self.changed.append, listed=self.listed, silence_seconds=silence_seconds
            )
            thread = threading.Thread(target=following.run)
            thread.start()
            try:
                yield following
            finally:
                following.stop()
                thread.join(SECONDS)
                assert not thread.is_alive()


@pytest.mark.parametrize(
    ("watches", "asked", "held", "changed"),
    [
        pytest.param(
            [[event("ADDED", "b", 11), event("ADDED", "c", 12)[:20], CUT], [event("ADDED", "c", 12), HOLD]],
            ["list", "watch 10", "watch 11"],
            {"a": 9, "b": 11, "c": 12},
            ["b", "c"],
            id="closed in the middle of a chunked line",
        ),
        pytest.param(
            [[event("ADDED", "b", 11), event("ADDED", "c", 12)[:20]], [event("ADDED", "c", 12), HOLD]],
            ["list", "watch 10", "watch 11"],
            {"a": 9, "b": 11, "c": 12},
            ["b", "c"],
            id="ended in the middle of a line",
        ),
        pytest.param(
            [[event("ADDED", "b", 11)[:20], event("ADDED", "b", 11)[20:] + event("MODIFIED", "a", 12), HOLD]],
            ["list", "watch 10"],
            {"a": 12, "b": 11},
            ["b", "a"],
            id="lines and chunks that do not agree",
        ),
        pytest.param(
            [[b"\n", event("ADDED", "b", 11), b"\n\n", event("DELETED", "a", 12), b"\n", HOLD]],
            ["list", "watch 10"],
            {"b": 11},
            ["b", "a"],
            id="blank lines",
        ),
        pytest.param(
            [[b"<html>sorry</html>\n"], [event("ADDED", "b", 11), HOLD]],
            ["list", "watch 10", "watch 10"],
            {"a": 9, "b": 11},
            ["b"],
            id="not an event",
        ),
        pytest.param(
            [[event("ADDED", "b", 11)], [], [event("ADDED", "c", 12), HOLD]],
            ["list", "watch 10", "watch 11", "watch 11"],
            {"a": 9, "b": 11, "c": 12},
            ["b", "c"],
            id="ended by the server, as it does after some minutes",
        ),
        pytest.param(
            [[HOLD], [event("ADDED", "b", 11), HOLD]],
            ["list", "watch 10", "watch 10"],
            {"a": 9, "b": 11},
            ["b"],
            id="silence",
        ),
        pytest.param(
            [[bookmark(50)], [event("ADDED", "b", 51), HOLD]],
            ["list", "watch 10", "watch 50"],
            {"a": 9, "b": 51},
            ["b"],
            id="nothing but a bookmark",
        ),
        pytest.param(
            [
                [event("ADDED", "b", 11), event("MODIFIED", "b", 12), event("DELETED", "a", 13), CUT],
                [
                    event("ADDED", "b", 11),
                    event("MODIFIED", "b", 12),
                    event("DELETED", "a", 13),
                    event("ADDED", "c", 14),
                    HOLD,
                ],
            ],
            ["list", "watch 10", "watch 13"],
            {"b": 12, "c": 14},
            ["b", "b", "a", "c"],
            id="replayed events",
        ),
        pytest.param(
            [[event("ADDED", "b", 11), error(500)], [event("ADDED", "c", 12), HOLD]],
            ["list", "watch 10", "watch 11"],
            {"a": 9, "b": 11, "c": 12},
            ["b", "c"],
            id="ERROR other than 410",
        ),
        pytest.param(
            [503, 429, [event("ADDED", "b", 11), HOLD]],
            ["list", "watch 10", "watch 10", "watch 10"],
            {"a": 9, "b": 11},
            ["b"],
            id="HTTP errors other than 410",
        ),
    ],
)
def test_a_watch_resumes_from_where_it_was(
    watches: Sequence[Sequence[Step] | int], asked: list[str], held: dict[str, int], changed: list[str]
) -> None:
    followed = Followed(Script(lists=[START], watches=watches))
    silence = 0.3 if watches[0] == [HOLD] else SECONDS
    with followed.run(silence_seconds=silence) as following:
        assert wait_until(lambda: versions(following) == held, SECONDS)
        assert wait_until(lambda: following.is_current, SECONDS)
        assert followed.script.asked[: len(asked)] == asked
    assert followed.changed == changed
    assert followed.listings == 1


@pytest.mark.parametrize(
    "watch",
    [
        pytest.param([event("ADDED", "b", 11), error(410)], id="ERROR 410"),
        pytest.param(410, id="HTTP 410"),
        pytest.param([event("ADDED", "c", 12), event("ADDED", "b", 11)], id="out of order"),
        pytest.param([event("DELETED", "a", 11), event("ADDED", "a", 9)], id="a deleted object comes back"),
    ],
)
def test_what_a_watch_can_not_tell_is_found_by_another_list(watch: Sequence[Step] | int) -> None:
    """``a`` went and ``d`` came meanwhile."""
    followed = Followed(Script(lists=[START, (20, [obj("b", 11), obj("d", 19)])], watches=[watch, [HOLD]]))
    with followed.run(silence_seconds=SECONDS) as following:
        assert wait_until(lambda: versions(following) == {"b": 11, "d": 19}, SECONDS)
        assert wait_until(lambda: following.is_current, SECONDS)
    assert followed.script.asked == ["list", "watch 10", "list", "watch 20"]
    assert followed.listings == 2


def test_a_server_in_trouble_is_asked_until_it_lists() -> None:
    followed = Followed(Script(lists=[503, 404, 403, 410, START], watches=[]))
    with followed.run(silence_seconds=SECONDS) as following:
        assert not following.is_current
        assert following.wait_until_listed(SECONDS)
    assert followed.script.asked[:6] == ["list"] * 5 + ["watch 10"]


def test_a_position_that_the_server_never_had_is_given_up() -> None:
    """As after a restore from a backup: the answer is an error that is not 410, for ever."""
    followed = Followed(
        Script(lists=[START, (5, [obj("a", 4)])], watches=[[error(504)]] * (reflector.FAILURES_UNTIL_LISTED + 1))
    )
    with followed.run(silence_seconds=SECONDS) as following:
        assert wait_until(lambda: versions(following) == {"a": 4}, SECONDS)
        assert wait_until(lambda: followed.script.asked[-1] == "watch 5", SECONDS)


def test_a_position_ahead_of_the_server_is_not_resumed_from() -> None:
    """A real one takes such a watch, and says nothing on it until it has come as far again."""
    script = Script(lists=[START, (5, [obj("a", 4)])], watches=[[event("ADDED", "b", 11)], [HOLD]], newest=5)
    followed = Followed(script)
    with followed.run(silence_seconds=SECONDS) as following:
        assert wait_until(lambda: versions(following) == {"a": 4}, SECONDS)
        assert wait_until(lambda: script.asked == ["list", "watch 10", "list", "watch 5"], SECONDS)


def versions(following: Reflector) -> dict[str, int]:
    return {o["metadata"]["name"]: int(o["metadata"]["resourceVersion"]) for o in following.store.all()}

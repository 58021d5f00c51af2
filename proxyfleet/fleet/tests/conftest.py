from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxyfleet.fleet.tests.world import World, new_world


@pytest.fixture
def world(db: None) -> Iterator[World]:
    with new_world() as world:
        yield world

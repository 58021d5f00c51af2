from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxyfleet.fleet.tests.world import World, new_world


@pytest.fixture
def world(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world whose one provider entry, ``mem``, is the one that the admin knows."""
    with new_world() as world:
        for module in ("orphans", "admin.editing", "admin.instance", "admin.providers"):
            monkeypatch.setattr(f"proxyfleet.fleet.{module}.providers", lambda: world.providers)
        yield world

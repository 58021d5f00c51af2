from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest

from leasing import access, index
from leasing.tests.api import Api
from proxyfleet.fleet.ports import ports


class RecordingProber:
    """Stands in for the health engine behind its port."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def probe_soon(self, proxy_ids: Iterable[int]) -> None:
        self.asked += proxy_ids


@pytest.fixture(autouse=True)
def _knows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy made by a test counts from the next lease on; nothing is known of the tests before."""
    monkeypatch.setattr(index, "index", index.FleetIndex(max_age=0))
    monkeypatch.setattr(access, "tokens", access.KnownTokens(remembered=timedelta(0)))


@pytest.fixture
def prober(monkeypatch: pytest.MonkeyPatch) -> RecordingProber:
    recording = RecordingProber()
    monkeypatch.setattr(ports, "prober", recording)
    return recording


@pytest.fixture
def api(db: None) -> Api:
    """The API with no token made yet: open."""
    return Api()

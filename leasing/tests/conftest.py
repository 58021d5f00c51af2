from __future__ import annotations

from collections.abc import Iterable

import pytest

from leasing.tests.api import Api
from proxyfleet.fleet.ports import ports


class RecordingProber:
    """Stands in for the health engine behind its port."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def probe_soon(self, proxy_ids: Iterable[int]) -> None:
        self.asked += proxy_ids


@pytest.fixture
def prober(monkeypatch: pytest.MonkeyPatch) -> RecordingProber:
    recording = RecordingProber()
    monkeypatch.setattr(ports, "prober", recording)
    return recording


@pytest.fixture
def api(db: None) -> Api:
    """The API with no token made yet: open."""
    return Api()

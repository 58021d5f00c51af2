from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from providers.blocks import ProcessBlock
from providers.process.driver import ProcessProvider
from providers.process.tests.machine import kill, processes_with
from providers.tests.contract import FLEET

Open = Callable[..., ProcessProvider]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A state folder of this test's own; no process that was started for it may be left when it is deleted."""
    root = tmp_path / "state"
    yield root
    for entry in (root / "process").glob("*"):
        for fleet_id in {name.name.rsplit("-", 2)[0] for name in entry.iterdir()}:
            provider = ProcessProvider(entry=entry.name, block=ProcessBlock(), fleet_id=fleet_id, state_dir=root)
            for instance in provider.list():
                provider.delete(instance.provider_id)
    if leaked := processes_with(str(root)):
        for pid in leaked:
            kill(pid)
        pytest.fail(f"{len(leaked)} processes were left behind")


@pytest.fixture
def open_provider(root: Path) -> Open:
    """A worker's provider; calling it again is another worker, or the same one after a restart."""

    def open_provider(*, fleet_id: str = FLEET, **block: object) -> ProcessProvider:
        return ProcessProvider(
            entry="here", block=ProcessBlock.model_validate(block), fleet_id=fleet_id, state_dir=root
        )

    return open_provider


@pytest.fixture
def provider(open_provider: Open) -> ProcessProvider:
    return open_provider()

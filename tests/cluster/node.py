"""A node of a running cluster that runs real pods, as long as a ``with`` block."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster import binaries, images, keeper, packages, product, programs
from tests.cluster.errors import ClusterError
from tests.cluster.inside import HIDDEN

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 60


def prepare() -> None:
    """Get all that a node needs; from nothing this takes minutes. Raises ClusterError when something can't be had."""
    packages.require_packages()
    binaries.obtain(programs.NODE_TIER)
    images.archive()
    product.packages()


class Node:
    """The one node of the cluster whose files are in ``folder``, with its controller manager and scheduler."""

    address: str
    """Where pods reach this machine, which they have no other way out of."""

    def __init__(self, folder: Path, archives: Sequence[Path] = ()) -> None:
        """``archives`` hold more images than all nodes have."""
        self._folder = folder.resolve()
        self._archives = archives

    def __enter__(self) -> Self:
        """Returns when it is Ready. Raises ClusterError when it can't be run here."""
        packages.require_packages()
        for folder in (self._folder, binaries.cache_folder()):
            if any(folder.is_relative_to(hidden) for hidden in HIDDEN):
                raise ClusterError(f"A node can't run from {folder}: it has {', '.join(HIDDEN)} for itself.")
        log = self._folder / "keeper.log"
        with log.open("wb") as errors:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", keeper.__spec__.name, str(self._folder), *map(str, self._archives)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        assert self._keeper.stdout is not None
        ready, _, self.address = self._keeper.stdout.readline().strip().partition(" ")
        if ready != keeper.READY:
            self._stop()
            raise ClusterError(f"The node did not start: {log.read_text(errors='replace').strip()[-3000:]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        with self._keeper:  # closes its input, and waits
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            try:
                self._keeper.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._keeper.kill()  # its guard ends the processes, the next node removes bridge and cgroup

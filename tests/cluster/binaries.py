"""Finds the programs of a cluster: given ones, else cached ones, else built once from Go modules."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import golang
from tests.cluster.errors import ClusterError
from tests.cluster.output import say
from tests.cluster.programs import API_SERVER_TIER, Program


def cache_folder() -> Path:
    """Where builds are kept: ``$XDG_CACHE_HOME/proxyfleet/cluster``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "proxyfleet" / "cluster"


def find(program: Program) -> Path:
    """The executable of ``program``. Raises ClusterError when it is not here, or not where the environment says."""
    found = _given(program) or _cached(program)
    if not found.exists():
        verb = "build" if program in API_SERVER_TIER else "build-node"
        raise ClusterError(
            f"{program} {program.module.version} is not in {found.parent}: `python -m tests.cluster {verb}` builds it "
            "there, once. Or name a folder that holds it by KUBEBUILDER_ASSETS."
        )
    return found


def obtain(programs: Iterable[Program]) -> None:
    """Build those of ``programs`` that are neither given nor cached; whoever builds already is waited for.

    Raises ClusterError when one can't be built.
    """
    missing = [program for program in programs if not (_given(program) or _cached(program)).exists()]
    if not missing:
        return
    cache = cache_folder()
    with exclusive(cache):
        for program in missing:
            if not _cached(program).exists():  # the one that we waited for may have built it
                _build(program, cache)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Make ``folder``, and wait until no other process makes something in it. What a killed one left is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Waiting for another process that is at work in {folder} ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for partial in folder.glob("partial-*"):
            shutil.rmtree(partial, ignore_errors=True)
        yield


def _given(program: Program) -> Path | None:
    """The path that the environment gives, by envtest's own variables."""
    if path := os.environ.get(program.variable):
        if not os.access(path, os.X_OK):
            raise ClusterError(f"{program.variable} names {path}, which is no executable file.")
        return Path(path)
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        if not Path(assets).is_dir():
            raise ClusterError(f"KUBEBUILDER_ASSETS names {assets}, which is no folder.")
        # envtest's folder holds the API server's tier; what a node needs on top is built.
        asset = Path(assets) / program
        return asset if os.access(asset, os.X_OK) else None
    return None


def _cached(program: Program) -> Path:
    return cache_folder() / program.module.key / program


def _build(program: Program, cache: Path) -> None:
    go = golang.toolchain(cache, program.module)
    # A program appears under its name when it is complete, or not at all.
    with tempfile.TemporaryDirectory(prefix="partial-", dir=cache) as partial:
        built = Path(partial) / program
        golang.build(go, program, built, cache / f"{program}.log")
        target = _cached(program)
        target.parent.mkdir(exist_ok=True)
        built.rename(target)

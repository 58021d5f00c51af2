"""Private folders, and paths short enough to hold a unix socket."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from proxyfleet.local.errors import LocalError

SOCKET_PATH_BYTES = 107
"""What ``sockaddr_un`` holds on Linux, without its closing NUL; macOS has 103."""

LONGEST_SOCKET = "postgres/.s.PGSQL.5432"


def private_folder(path: Path, *, mode: int = 0o700, owner: int | None = None) -> Path:
    """Make ``path``, for the user and group ``owner`` if that isn't us, unless it is there already.

    Raises LocalError when it can't be written, or is a stranger's.
    """
    ours = os.geteuid()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {ours, owner}:
            raise LocalError(f"{path} is not a folder of ours: remove it and start again.")
        path.chmod(mode)
        if owner not in {None, found.st_uid}:
            os.chown(path, owner, owner)
    except OSError as error:
        raise LocalError(f"Can't write to {path}: {error.strerror}.") from error
    return path


def runtime_folder(var: Path) -> Path:
    """Where the sockets of the deployment in ``var`` live: ``var/run``, or a short path derived from it.

    A unix socket's path holds about a hundred bytes, which a deep checkout exceeds.
    """
    for candidate in _runtime_candidates(var.resolve()):
        if len(os.fsencode(candidate / LONGEST_SOCKET)) <= SOCKET_PATH_BYTES - 4:
            return candidate
    raise LocalError(f"No folder with a path short enough for a unix socket: set TMPDIR to a short one (for {var}).")


def remove_runtime_folder(var: Path) -> None:
    """Remove the sockets of the deployment in ``var``, once its servers have stopped."""
    shutil.rmtree(runtime_folder(var), ignore_errors=True)


def _runtime_candidates(var: Path) -> Iterator[Path]:
    yield var / "run"
    name = folder_name(var)
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session and Path(session).is_dir() and Path(session).stat().st_uid == os.geteuid():
        yield Path(session) / name
    yield Path(tempfile.gettempdir()) / name
    yield Path("/tmp") / name  # noqa: S108 - private_folder() verifies whose it is


def folder_name(var: Path) -> str:
    """A name for ``var``'s folder outside of it: the same in every run, different for every checkout."""
    return f"proxyfleet-{hashlib.sha256(os.fsencode(var)).hexdigest()[:12]}"

"""One deployment at a time in a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxyfleet.local.errors import LocalError
from proxyfleet.local.folders import private_folder


@contextmanager
def exclusive(var: Path) -> Iterator[None]:
    """Hold ``var`` until the end of the block; the kernel lets go of it however we end.

    Raises LocalError naming the process that holds it already.
    """
    path = private_folder(var) / "lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise LocalError(f"Process {file.read()} is already running in {var}: stop it first.") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield

"""One host for the whole run; what a test makes on it is gone when the test ends."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kvm.__main__ import INSIDE

collect_ignore_glob = [] if INSIDE in os.environ else ["test_*.py"]

if INSIDE in os.environ:
    from tests.kvm.host import Host
    from tests.kvm.sources import ImageServer

    @pytest.fixture(scope="session")
    def the_host() -> Iterator[Host]:
        # /var/tmp: QEMU runs as another user, and must get at its disks.
        with tempfile.TemporaryDirectory(prefix="proxyfleet-kvm-", dir="/var/tmp") as folder:
            root = Path(folder)
            root.chmod(0o755)
            host = Host(root)
            host.start()
            yield host
            host.stop()

    @pytest.fixture
    def host(the_host: Host) -> Iterator[Host]:
        yield the_host
        the_host.clear()

    @pytest.fixture(scope="session")
    def images() -> Iterator[ImageServer]:
        server = ImageServer()
        yield server
        server.close()

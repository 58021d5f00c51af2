"""The tests' guest images, built from Debian packages and kept in the user's cache folder by the hash of their recipe.

Both boot by SeaBIOS and by OVMF. ``full`` is a Debian with cloud-init, the guest agent and Squid, and boots in half a
minute where there is no hardware virtualization; ``tiny`` is a kernel and busybox, asks DHCP for an address, and boots
in seconds.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RECIPE = Path(__file__).with_name("build-image")
KINDS = ("tiny", "full")


def path_of(kind: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(RECIPE.read_bytes()).hexdigest()
    return cache / "proxyfleet" / "kvm" / f"{kind}-{digest[:16]}.qcow2"


def ensure(kind: str) -> Path:
    """Build the image unless it is there. Needs root, and the packages that ``python -m tests.kvm`` names."""
    path = path_of(kind)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"Building the {kind} guest image {path} ...", file=sys.stderr)  # noqa: T201 - takes a minute
        # /var/tmp, as a root file system does not fit into every /tmp.
        with tempfile.TemporaryDirectory(prefix="proxyfleet-image-", dir="/var/tmp") as folder:
            draft = path.with_suffix(".new")
            subprocess.run([RECIPE, kind, draft], cwd=folder, check=True)
            draft.rename(path)
    return path

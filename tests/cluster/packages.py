"""What a node takes from Debian, installed where that may be done."""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.cluster.errors import ClusterError
from tests.cluster.output import say

PACKAGES = {
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "debootstrap": "debootstrap",
    "iproute2": "ip",
    "util-linux": "unshare",
}
"""Each with a program that tells that it is there."""

APT_GET = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3"]


def require_packages() -> None:
    """Install what is missing. Raises ClusterError where that can't be done."""
    if os.geteuid() != 0:
        raise ClusterError("A node mounts file systems and makes network interfaces: only root can run one.")
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # not in every root's, and what we start looks there too
    missing = [name for name, program in PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(f"A node needs {', '.join(missing)}, as Debian has it, and there is no apt-get: install it.")
    say(f"Installing {', '.join(missing)} ...")
    if not _apt_get("update"):
        say("apt-get update failed: trying with the package lists that are here.")
    if not _apt_get("install", "--yes", "--no-install-recommends", *missing):
        raise ClusterError(f"apt-get can't install {', '.join(missing)}: see above, and install it by hand.")


def _apt_get(*arguments: str) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        [*APT_GET, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
    )
    return done.returncode == 0

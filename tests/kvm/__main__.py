"""Run the suite on a private libvirt host: ``python -m tests.kvm [pytest's arguments]``, as root.

The host lives in namespaces of its own (network, mounts, processes) and ends with them, however this ends. What it is
made of comes from Debian packages; the guest images are built before, while there is a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.kvm import image

PACKAGES = (
    *("libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-daemon-system", "libvirt-clients", "dnsmasq-base"),
    *("qemu-system-x86", "qemu-utils", "ovmf", "openssh-server", "openssh-client", "iproute2", "iptables", "kmod"),
    *("mmdebstrap", "busybox-static", "cpio", "grub-common", "grub-pc-bin", "grub-efi-amd64-bin"),
    *("dosfstools", "mtools", "e2fsprogs", "fdisk"),
)
BUILD_PACKAGES = ("libvirt-dev", "pkg-config", "gcc", "libc6-dev")
"""What libvirt-python is compiled with."""

NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
INSIDE = "PROXYFLEET_KVM_TESTS"
"""Set within the namespaces: without it the tests are not collected."""


def main(arguments: list[str]) -> int:
    if arguments == ["--install-packages"]:
        return install_packages()
    if INSIDE in os.environ:
        return run_inside(arguments)
    for kind in image.KINDS:
        image.ensure(kind)
    command = [*NAMESPACES, sys.executable, "-m", "tests.kvm", *arguments]
    return subprocess.run(command, env=os.environ | {INSIDE: "1"}, check=False).returncode


def install_packages() -> int:
    """From Debian's archive. Does nothing when all are there."""
    wanted = [package for package in (*PACKAGES, *BUILD_PACKAGES) if not is_installed(package)]
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        wanted.append("python3-dev")
    if not wanted:
        return 0
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(  # noqa: T201 - an answer to whoever typed the command
            f"The KVM tests need root on Debian or Ubuntu, and these packages: {' '.join(wanted)}", file=sys.stderr
        )
        return 1
    apt = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*apt, "update"], check=True, env=environment)
    install = [*apt, "install", "-y", "--no-install-recommends", *wanted]
    return subprocess.run(install, stdout=subprocess.DEVNULL, check=False, env=environment).returncode


def is_installed(package: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=False).stdout == "installed"
    except FileNotFoundError:
        return False


def run_inside(arguments: list[str]) -> int:
    # sysfs shows the network of the namespace that mounted it: libvirt looks for its bridges there.
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hosts = "--allow-hosts=127.0.0.0/8,::1,localhost,192.168.231.0/24"
    command = [sys.executable, "-m", "pytest", hosts, *(arguments or ["tests/kvm"])]
    child = subprocess.Popen(command)
    # Process 1 inherits every orphan of the daemons. Unreaped they look alive, and libvirt waits for them to go.
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

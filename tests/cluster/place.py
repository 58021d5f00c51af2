"""A node's place on the machine: a bridge with its subnet, and a cgroup. Both go with it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import AF_INET

import psutil

from providers.process.processes import Process, find_process
from proxyfleet.local.processes import wait_until
from tests.cluster.binaries import cache_folder, exclusive
from tests.cluster.errors import ClusterError

PODS = "10.88.0.0/16"
"""Where the pods of all nodes are."""

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Place:
    """The node numbered ``number`` of those that run on this machine now."""

    number: int

    @property
    def bridge(self) -> str:
        return f"pf-node{self.number}"

    @property
    def subnet(self) -> str:
        return f"10.88.{self.number}.0/24"

    @property
    def address(self) -> str:
        """The node's own, and its pods' gateway."""
        return f"10.88.{self.number}.1"

    @property
    def first_pod(self) -> str:
        return f"10.88.{self.number}.10"

    @property
    def cgroup(self) -> str:
        return f"/{self.bridge}"


@contextmanager
def taken() -> Iterator[Place]:
    """A place that no other node has. Raises ClusterError when there is none."""
    with exclusive(cache_folder() / "nodes"):
        place = _take()
    try:
        _ip("address", "add", f"{place.address}/24", "dev", place.bridge)
        _ip("link", "set", place.bridge, "up")
        for hierarchy in _hierarchies():
            (hierarchy / place.bridge).mkdir(exist_ok=True)
        yield place
    finally:
        _leave(place)


def _take() -> Place:
    """Claim one by its bridge, whose alias tells whose it is."""
    for number in range(256):
        place = Place(number)
        owner = _owner(place)
        if owner is not None and not _is_alive(owner):
            _leave(place)  # of a keeper that was killed
        if not _is_in_use(place.subnet) and _try_ip("link", "add", place.bridge, "type", "bridge"):
            _ip("link", "set", place.bridge, "alias", _mark(find_process(os.getpid())))
            return place
    raise ClusterError("No bridge can be made (ip link add pf-node0 type bridge), or 256 nodes run already.")


def _is_in_use(subnet: str) -> bool:
    """Has anything else on this machine an address there?"""
    network = ipaddress.ip_network(subnet)
    addresses = [
        address.address for each in psutil.net_if_addrs().values() for address in each if address.family == AF_INET
    ]
    return any(ipaddress.ip_address(address) in network for address in addresses)


def _mark(process: Process | None) -> str:
    return f"proxyfleet-node:{process.pid}:{process.birth}" if process else ""


def _owner(place: Place) -> str | None:
    """The mark on the bridge of ``place``, if it is one of ours."""
    try:
        alias = Path(f"/sys/class/net/{place.bridge}/ifalias").read_text().strip()
    except OSError:
        return None
    return alias if alias.startswith("proxyfleet-node:") else None


def _is_alive(mark: str) -> bool:
    return _mark(find_process(int(mark.split(":")[1]))) == mark


def _leave(place: Place) -> None:
    """Remove both. The processes in it have ended; the kernel may need a moment to see that."""
    for hierarchy in _hierarchies():
        top = hierarchy / place.bridge
        if not wait_until(partial(_remove_cgroup, top), 10):
            raise ClusterError(f"{top} still holds processes: end them and remove it.")
    _try_ip("link", "delete", place.bridge)


def _remove_cgroup(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):  # still in use: the caller asks again
            Path(folder).rmdir()
    return not top.exists()


def _hierarchies() -> list[Path]:
    """The one of cgroup v2, or the many of v1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _try_ip(*arguments: str) -> bool:
    return subprocess.run(["ip", *arguments], capture_output=True, check=False).returncode == 0

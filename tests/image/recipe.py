"""The image without Docker: what the Dockerfile copies and installs, read from it and done by hand."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
UID = 10001


def copied() -> list[str]:
    """The sources of its COPY lines, each of which goes to the same place below /app."""
    lines = [line.split() for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    for _, source, target in lines:
        assert target in (source, "."), f"{source} goes elsewhere"
    return [source for _, source, _ in lines]


def ignored() -> tuple[list[str], list[str]]:
    """What .dockerignore lets in at the top, and the names that it keeps out everywhere."""
    rules = (ROOT / ".dockerignore").read_text().split()
    assert rules[0] == "*"
    allowed = [rule.removeprefix("!") for rule in rules[1:] if rule.startswith("!")]
    return allowed, [rule.removeprefix("**/") for rule in rules if rule.startswith("**/")]


def copy_to(app: Path) -> None:
    """Fill ``app`` with exactly that."""
    allowed, everywhere = ignored()
    app.mkdir(parents=True)
    for source in copied():
        assert source in allowed, f".dockerignore keeps {source} from the build"
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, app / source, ignore=shutil.ignore_patterns(*everywhere))
        else:
            shutil.copy(ROOT / source, app / source)


def install(requirements: str, *arguments: str) -> None:
    """``pip install`` of pinned wheels alone, by uv, which also knows what another Python needs.

    ``arguments`` say where to.
    """
    uv = ["uv", "--quiet", "--system-certs", "pip", "install", "--link-mode", "copy"]
    command = [*uv, "--only-binary", ":all:", "--require-hashes"]
    done = subprocess.run(
        [*command, *arguments, "-r", str(ROOT / requirements)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

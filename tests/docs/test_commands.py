"""The commands of the documents, run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from leasing.tests.processes import environment
from proxyfleet.local.postgres import binary_folder
from tests.bridge.bridges import SYSTEM, install
from tests.cluster import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.programs import Program
from tests.docs.documents import ROOT, Document, with_commands

PROXY = """
apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata: {name: eu-1}
spec: {provider: in-cluster}
"""
SECRETS = {"squid": "user-data=#cloud-config", "login": "username=crawler"}
LINKED = (".venv", "deploy", "Makefile", "proxyfleet", "providers", "health", "leasing", "k8s_sync", "templates")
FILES = ("id_ed25519", "known_hosts", "token", "ca.pem")
CREATED = ("proxyfleet", "discovery-token", "kvm-ssh", "proxmox-token")


def run(script: str, folder: Path, variables: Mapping[str, str], *path: Path) -> str:
    """All of ``script`` in one shell, in a checkout; the first command that fails ends it, and the test."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    programs = ":".join(map(str, (Path(sys.executable).parent, *path)))
    done = subprocess.run(
        ["bash", "-xeuo", "pipefail", "-c", script],
        cwd=folder,
        env=inherited | dict(variables) | {"PATH": f"{programs}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the commands write is not left in ours."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in (
        ".venv",
        "deploy",
        "Makefile",
        "proxyfleet",
        "providers",
        "health",
        "leasing",
        "k8s_sync",
        "templates",
    ):
        (folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "manage.py", folder)
    for path in ROOT.glob("requirements*.txt"):
        shutil.copy(path, folder)
    for name in FILES:
        (folder / name).write_text("not a secret")
    return folder


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("document", with_commands("host"), ids=lambda document: document.name)
def test_on_a_host(document: Document, checkout: Path) -> None:
    # A server speaks HTTPS; the tests do not.
    variables = {**environment(), "PROXYFLEET_HTTPS": "true"}
    run(document.script("host"), checkout, variables, binary_folder())


@pytest.fixture
def described(cluster: Cluster) -> Iterator[Cluster]:
    """The objects that the documents speak of, in the namespace ``default``."""
    install(cluster)
    cluster.kubectl("apply", "-n", "default", "-f", "-", stdin=PROXY)
    for name, literal in SECRETS.items():
        cluster.kubectl("create", "secret", "generic", name, "-n", "default", f"--from-literal={literal}")
    yield cluster
    cluster.kubectl("delete", "px", "-n", "default", "--all")
    cluster.kubectl("delete", "secret", "-n", "default", *SECRETS)
    cluster.kubectl("delete", "secret", "-n", SYSTEM, "--ignore-not-found", *CREATED)


@pytest.mark.parametrize("document", with_commands("cluster"), ids=lambda document: document.name)
def test_on_a_cluster(document: Document, checkout: Path, described: Cluster) -> None:
    variables = {"KUBECONFIG": str(described.kubeconfig), "NO_PROXY": "127.0.0.1"}
    run(document.script("cluster"), checkout, variables, binaries.find(Program.KUBECTL).parent)


def test_commands_that_can_be_run_are_run() -> None:
    """Only what needs something that the tests have not is left out."""
    needs = r"\b(docker|kind|gcloud|pveum|qm|apt|createsuperuser|k8s_sync|port-forward|createdb|cluster-up)\b"
    for document in with_commands("elsewhere"):
        for block in document.blocks:
            assert block.place != "elsewhere" or re.search(needs, block.text), block.text

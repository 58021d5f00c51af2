"""What kustomize makes of deploy/, read as it is applied."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import binaries
from tests.cluster.programs import Program

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = ("dev", "prod")

Manifest = dict[str, Any]


@cache
def rendered(overlay: str) -> str:
    command = [str(binaries.find(Program.KUBECTL)), "kustomize", str(DEPLOY / "overlays" / overlay)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def manifests(overlay: str, kind: str = ".*") -> list[Manifest]:
    return [found for found in yaml.safe_load_all(rendered(overlay)) if re.fullmatch(kind, found["kind"])]


def processes(overlay: str) -> dict[str, Manifest]:
    """The pod templates of the product's own processes, by name."""
    deployments = {found["metadata"]["name"]: found["spec"]["template"] for found in manifests(overlay, "Deployment")}
    return {name: pod for name, pod in deployments.items() if main(pod)["image"] == "proxyfleet"}


def main(pod: Manifest) -> Manifest:
    [container] = pod["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def config_map(overlay: str, name: str) -> dict[str, str]:
    """The data of a generated one, whose name ends in a hash."""
    [found] = [each for each in manifests(overlay, "ConfigMap") if each["metadata"]["name"].startswith(f"{name}-")]
    data: dict[str, str] = found["data"]
    return data

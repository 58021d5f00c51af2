"""The workflow of the repository calls what exists, and names the image as it is to be named."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.manifests import ROOT

WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_its_commands_are_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = [step["run"].removeprefix("make ") for step in STEPS if step.get("run", "").startswith("make ")]
    assert {"lint", "audit", "test"} == set(called) <= targets


def test_nothing_is_pushed_before_it_is_checked_tested_and_scanned() -> None:
    image = WORKFLOW["jobs"]["image"]
    assert set(image["needs"]) == {"check", "test"}
    used = [step.get("uses", "").partition("@")[0] for step in image["steps"]]
    pushes = [index for index, step in enumerate(image["steps"]) if step.get("with", {}).get("push")]
    assert pushes == [len(used) - 1]
    assert used.index("aquasecurity/trivy-action") < pushes[0]
    assert WORKFLOW["permissions"] == {"contents": "read"}


def test_an_image_is_tagged_by_its_commit_and_by_the_tag_if_there_is_one(tmp_path: Path) -> None:
    [script] = [step["run"] for step in STEPS if step.get("name") == "Name the tags"]
    sha = "0123456789abcdef0123456789abcdef01234567"

    def tags(**variables: str) -> list[str]:
        written = tmp_path / "env"
        written.unlink(missing_ok=True)
        ours = {"IMAGE": "ghcr.io/example/proxyfleet", "GITHUB_SHA": sha, "GITHUB_ENV": str(written), **variables}
        subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=os.environ | ours, check=True)
        first, *names, last = written.read_text().splitlines()
        assert (first, last) == ("TAGS<<END", "END")
        return names

    commit = "ghcr.io/example/proxyfleet:sha-0123456789ab"
    assert tags(GITHUB_REF_TYPE="branch", GITHUB_REF_NAME="main") == [commit]
    assert tags(GITHUB_REF_TYPE="tag", GITHUB_REF_NAME="v1.2.3") == [commit, "ghcr.io/example/proxyfleet:v1.2.3"]

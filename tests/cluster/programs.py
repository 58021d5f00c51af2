"""The programs of a cluster, and the Go modules that pin each of them with its dependencies."""

from __future__ import annotations

import enum
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MODULES = Path(__file__).parent / "modules"


@dataclass(frozen=True)
class Module:
    """A folder of ``modules/``, with a go.mod and a go.sum.

    One for each project, so that none moves another's dependencies.
    """

    name: str
    path: str
    """The Go module whose programs are built."""

    @property
    def folder(self) -> Path:
        return MODULES / self.name

    @cached_property
    def version(self) -> str:
        """Without its ``v``."""
        found = re.search(rf"^(?:require)?\s*{re.escape(self.path)} v(\S+)", self._text, re.MULTILINE)
        assert found, f"{self.folder}/go.mod does not require {self.path}"
        return found[1]

    @cached_property
    def go_version(self) -> str:
        """The oldest Go that builds it."""
        found = re.search(r"^go (\S+)", self._text, re.MULTILINE)
        assert found, f"{self.folder}/go.mod names no Go version"
        return found[1]

    @cached_property
    def key(self) -> str:
        """Names what is built from it: another one as soon as anything that goes into it is another."""
        pins = self._text.encode() + (self.folder / "go.sum").read_bytes()
        return f"{self.name}-{self.version}-{hashlib.sha256(pins).hexdigest()[:8]}"

    @cached_property
    def _text(self) -> str:
        return (self.folder / "go.mod").read_text()

    @property
    def linker_flags(self) -> str:
        """What a release's own build would set. Clients refuse an API server that says v0.0.0."""
        values: dict[str, str] = {}
        if self.name == "kubernetes":
            major, minor, _ = self.version.split(".", 2)
            stamp = {"gitVersion": f"v{self.version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
            for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
                values |= {f"{package}.{name}": value for name, value in stamp.items()}
        elif self.name == "containerd":
            values[f"{self.path}/version.Version"] = f"v{self.version}"
        return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])


KUBERNETES = Module("kubernetes", "k8s.io/kubernetes")
ETCD = Module("etcd", "go.etcd.io/etcd/server/v3")
CONTAINERD = Module("containerd", "github.com/containerd/containerd/v2")


class Program(enum.StrEnum):
    """Each value is the name of the executable."""

    APISERVER = "kube-apiserver"
    ETCD = "etcd"
    KUBECTL = "kubectl"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    KUBELET = "kubelet"
    CONTAINERD = "containerd"
    SHIM = "containerd-shim-runc-v2"
    CTR = "ctr"

    @property
    def module(self) -> Module:
        if self in {Program.CONTAINERD, Program.SHIM, Program.CTR}:
            return CONTAINERD
        return ETCD if self is Program.ETCD else KUBERNETES

    @property
    def package(self) -> str:
        return self.module.path if self is Program.ETCD else f"{self.module.path}/cmd/{self}"

    @property
    def variable(self) -> str:
        """The environment's name for a given path: envtest's."""
        return f"TEST_ASSET_{self.upper().replace('-', '_')}"


API_SERVER_TIER = (Program.ETCD, Program.KUBECTL, Program.APISERVER)
NODE_TIER = (
    *API_SERVER_TIER,
    Program.CONTROLLER_MANAGER,
    Program.SCHEDULER,
    Program.KUBELET,
    Program.CONTAINERD,
    Program.SHIM,
    Program.CTR,
)

"""etcd and kube-apiserver as processes of ours, on loopback ports of their own."""

from __future__ import annotations

import base64
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import requests

from proxyfleet.local.addresses import free_port
from proxyfleet.local.processes import Child, Guard, Program
from tests.cluster import audit, binaries, children, programs
from tests.cluster.pki import Pki

STOP_SECONDS = 3
"""An API server takes up to a minute to end with open watches, and has nothing to lose: etcd has the data."""

REVISION_MARK = base64.b64encode(b"/revision-mark").decode()


class ApiServer:
    """Runs as long as a ``with`` block, or until its parent dies. All of its state is in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.pki = Pki(self.folder / "pki")
        self.audit_log = self.folder / "audit.log"
        self._port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self._child: Child | None = None
        self._etcd_child: Child | None = None
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def _etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._etcd_port}"

    def __enter__(self) -> Self:
        """Returns when it is ready. Raises ClusterError when it does not come up."""
        self.pki.create(self.url)
        self.audit_log.touch()
        (self.folder / "audit-policy.yaml").write_text(audit.POLICY)
        with ExitStack() as stack:
            self._guard = stack.enter_context(Guard())
            stack.callback(self._stop_etcd)
            self._start_etcd()
            stack.callback(self.stop)
            self.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start the API server on its port and data. Returns when it is ready."""
        assert self._child is None, "the API server runs already"
        self._child = children.start(self._apiserver, self._guard, self.folder / "kube-apiserver.log")

    def stop(self) -> None:
        """Ask it to end, and kill it after a few seconds."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """As a crash would: connections break in the middle of what they were sending."""
        if self._child is not None:
            self._child.kill()
            self.stop()

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextmanager
    def hung(self) -> Iterator[None]:
        """It takes connections and says nothing while the block runs."""
        assert self._child is not None, "the API server does not run"
        group = self._child.process.pid
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)

    def back_up(self) -> Path:
        """What etcd holds now, for `restore`."""
        backup = self.folder / "etcd-backup"
        with self._etcd_stopped():
            shutil.rmtree(backup, ignore_errors=True)
            shutil.copytree(self.folder / "etcd", backup)
        return backup

    def restore(self, backup: Path) -> None:
        """Go back to it: objects, their generations and all resourceVersions are as they were then."""
        with self._etcd_stopped():
            shutil.rmtree(self.folder / "etcd")
            shutil.copytree(backup, self.folder / "etcd")

    @contextmanager
    def _etcd_stopped(self) -> Iterator[None]:
        self.kill()
        self._stop_etcd()
        yield
        self._start_etcd()
        self.start()

    def _start_etcd(self) -> None:
        self._etcd_child = children.start(self._etcd, self._guard, self.folder / "etcd.log")

    def _stop_etcd(self) -> None:
        if self._etcd_child is not None:
            self._etcd_child.stop()
            self._etcd_child = None

    def compact(self) -> None:
        """Forget all history: a watch from any earlier resourceVersion is answered by 410.

        The API server is killed for it: it serves recent events from its memory whatever etcd has forgotten.
        """
        self.kill()
        # One more revision, so that the latest one that a client can have seen is history as well.
        put = self._etcd_call("put", {"key": REVISION_MARK, "value": REVISION_MARK})
        self._etcd_call("compaction", {"revision": put["header"]["revision"], "physical": True})
        self.start()

    def _etcd_call(self, method: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        """One call of etcd's gRPC gateway."""
        with requests.Session() as session:
            session.trust_env = False
            answer = session.post(f"{self._etcd_url}/v3/kv/{method}", json=body, timeout=10)
            answer.raise_for_status()
            found: dict[str, dict[str, str]] = answer.json()
            return found

    @property
    def _etcd(self) -> Program:
        peer = f"http://127.0.0.1:{self._peer_port}"
        options = {
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": self._etcd_url,
            "advertise-client-urls": self._etcd_url,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
        }
        return Program("etcd", [str(binaries.find(programs.Program.ETCD)), *flags(options)], ready=self._etcd_is_ready)

    @property
    def _apiserver(self) -> Program:
        pki = self.pki
        options = {
            "etcd-servers": self._etcd_url,
            "bind-address": "127.0.0.1",
            "secure-port": str(self._port),
            # A loopback address can't be published as the endpoint of the "kubernetes" service.
            "advertise-address": "127.0.0.1",
            "endpoint-reconciler-type": "none",
            "tls-cert-file": str(pki.server_certificate),
            "tls-private-key-file": str(pki.server_key),
            "client-ca-file": str(pki.ca),
            "kubelet-client-certificate": str(pki.server_certificate),
            "kubelet-client-key": str(pki.server_key),
            "kubelet-preferred-address-types": "InternalIP",
            "token-auth-file": str(pki.tokens),
            "authorization-mode": "Node,RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": str(pki.token_key),
            "service-account-key-file": str(pki.token_key),
            "service-cluster-ip-range": "10.96.0.0/24",
            "allow-privileged": "true",
            "audit-policy-file": str(self.folder / "audit-policy.yaml"),
            "audit-log-path": str(self.audit_log),
        }
        argv = [str(binaries.find(programs.Program.APISERVER)), *flags(options)]
        return Program("kube-apiserver", argv, ready=self._is_ready, grace_seconds=STOP_SECONDS)

    def _etcd_is_ready(self) -> bool:
        return _answers(f"{self._etcd_url}/readyz")

    def _is_ready(self) -> bool:
        return _answers(f"{self.url}/readyz", verify=str(self.pki.ca))


def flags(options: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def _answers(url: str, verify: str | bool = True) -> bool:
    with requests.Session() as session:
        session.trust_env = False  # no proxy on the way to ourselves
        try:
            return session.get(url, verify=verify, timeout=2).ok
        except requests.RequestException:
            return False

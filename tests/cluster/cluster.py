"""What tests and people do with a running cluster."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import requests

from tests.cluster import access, binaries
from tests.cluster.apiserver import ApiServer
from tests.cluster.audit import Audit
from tests.cluster.pki import ADMIN
from tests.cluster.programs import Program

TOKEN_LIFETIME = "12h"


class KubectlError(Exception):
    """kubectl failed; the message is what it printed to standard error."""


class Cluster:
    """A running API server and its administrator."""

    def __init__(self, server: ApiServer, *, controllers: bool = False) -> None:
        """``controllers``: does a controller manager run, which empties namespaces and gives them a ServiceAccount?"""
        self.server = server
        self.controllers = controllers
        self.audit = Audit(server.audit_log)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def ca(self) -> Path:
        """The certificate of the authority that vouches for the API server."""
        return self.server.pki.ca

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.server.pki.kubeconfig(ADMIN)

    def start(self) -> None:
        """Start the API server after ``kill``, on the same port and data."""
        self.server.start()

    def kill(self) -> None:
        """Kill the API server as a crash would. etcd lives on."""
        self.server.kill()

    def restart(self) -> None:
        """End the API server and start it on the same port and data."""
        self.server.restart()

    def compact(self) -> None:
        """Restart without any history: a watch from any earlier resourceVersion is answered by 410."""
        self.server.compact()

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """What kubectl prints, as the administrator unless another kubeconfig is given.

        ``stdin`` is for ``-f -``. Raises KubectlError.
        """
        command = [
            str(binaries.find(Program.KUBECTL)),
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--cache-dir={self.server.folder / 'kubectl-cache'}",
            *arguments,
        ]
        environment = os.environ | {"NO_PROXY": "127.0.0.1"}
        done = subprocess.run(command, input=stdin, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise KubectlError(done.stderr.strip())
        return done.stdout

    def session(self) -> requests.Session:
        """For requests to ``url`` as the administrator."""
        return access.session(self.kubeconfig)

    def get(self, *arguments: str) -> dict[str, Any]:
        """``kubectl get ARGUMENTS -o json``."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a fresh token (TokenRequest, 12 hours) of a ServiceAccount that exists."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration", TOKEN_LIFETIME).strip()
        path = self.server.folder / f"{namespace}-{name}.kubeconfig"
        self.server.pki.write_kubeconfig(path, self.url, token, namespace)
        return path

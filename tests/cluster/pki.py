"""Certificates, keys and tokens of one cluster."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

import trustme
import yaml

ADMIN = "admin"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
NODE = "node1"
KUBELET = f"system:node:{NODE}"

GROUPS = {ADMIN: "system:masters", CONTROLLER_MANAGER: "", SCHEDULER: "", KUBELET: "system:nodes"}
SERVER_NAMES = ("127.0.0.1", "localhost", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class Pki:
    """The files in ``folder``, made by ``create``."""

    folder: Path

    def create(self, server: str) -> None:
        """Make everything for the API server at the URL ``server``."""
        self.folder.mkdir(mode=0o700)
        ca = trustme.CA()
        ca.cert_pem.write_to_path(self.ca)
        # The server shows it to a kubelet too, which lets this group do everything.
        leaf = ca.issue_cert(*SERVER_NAMES, common_name="kube-apiserver", organization_name=GROUPS[ADMIN])
        leaf.private_key_pem.write_to_path(self.server_key)
        leaf.cert_chain_pems[0].write_to_path(self.server_certificate)
        # Any key pair signs the tokens of service accounts.
        ca.issue_cert("service-accounts").private_key_pem.write_to_path(self.token_key)
        lines = []
        for user, group in GROUPS.items():
            token = secrets.token_urlsafe(32)
            lines.append(f'{token},{user},{user},"{group}"\n' if group else f"{token},{user},{user}\n")
            self.write_kubeconfig(self.kubeconfig(user), server, token)
        self.tokens.write_text("".join(lines))

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def server_certificate(self) -> Path:
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"

    @property
    def token_key(self) -> Path:
        return self.folder / "service-accounts.key"

    @property
    def tokens(self) -> Path:
        """For ``--token-auth-file``."""
        return self.folder / "tokens.csv"

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user.replace(':', '-')}.kubeconfig"

    def write_kubeconfig(self, path: Path, server: str, token: str, namespace: str = "default") -> None:
        """The bearer of ``token``, who works in ``namespace`` unless another is named."""
        cluster = {"server": server, "certificate-authority": str(self.ca)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user", "namespace": namespace}}],
            "current-context": "test",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config, sort_keys=False))

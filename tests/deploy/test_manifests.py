"""deploy/ as a real API server takes it: strict about fields, the restricted Pod Security Standard enforced."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bridge.bridges import SYSTEM
from tests.cluster import binaries
from tests.cluster.cluster import Cluster, KubectlError
from tests.cluster.programs import Program
from tests.deploy.manifests import DEPLOY, OVERLAYS, ROOT, containers, main, manifests, processes, rendered

STRICT = ("apply", "--dry-run=server", "--validate=strict", "--server-side", "-f", "-")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_manifest_is_taken(installed: Cluster, overlay: str) -> None:
    taken = installed.kubectl(*STRICT, stdin=rendered(overlay))
    assert len(taken.splitlines()) == len(manifests(overlay))


def test_a_field_that_does_not_exist_would_be_refused(installed: Cluster) -> None:
    with pytest.raises(KubectlError, match="terminationGraceSeconds"):
        installed.kubectl(
            *STRICT, stdin=rendered("dev").replace("terminationGracePeriodSeconds", "terminationGraceSeconds")
        )


def pods(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for workload in manifests(overlay, "Deployment|StatefulSet|Job"):
        template = workload["spec"]["template"]
        spec = dict(template["spec"])
        claims = workload["spec"].get("volumeClaimTemplates", ())
        spec["volumes"] = [*spec.get("volumes", ()), *({"name": c["metadata"]["name"], "emptyDir": {}} for c in claims)]
        name = workload["metadata"]["name"]
        metadata = {"name": f"try-{name}", "namespace": SYSTEM, "labels": template["metadata"]["labels"]}
        yield name, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("name", "pod"), [pytest.param(*each, id=f"{o}-{each[0]}") for o in OVERLAYS for each in pods(o)]
)
def test_every_pod_is_admitted_under_the_restricted_standard(
    installed: Cluster, name: str, pod: dict[str, Any]
) -> None:
    labels = installed.get("namespace", SYSTEM)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    installed.kubectl(*STRICT, stdin=json.dumps(pod))
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        installed.kubectl(*STRICT, stdin=json.dumps(pod))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_container_has_limits_probes_and_a_root_that_can_not_be_written(overlay: str) -> None:
    for name, pod in pods(overlay):
        for container in containers(pod):
            assert container["securityContext"]["readOnlyRootFilesystem"], name
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), name
            assert "memory" in container["resources"]["limits"], name
    for name, pod in processes(overlay).items():
        assert {"startupProbe", "livenessProbe"} <= set(main(pod)), name
        assert name == "flower" or "readinessProbe" in main(pod), name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_who_talks_to_the_cluster_has_a_token_for_it(overlay: str) -> None:
    accounts = {
        name: pod["spec"].get("serviceAccountName")
        for name, pod in pods(overlay)
        if pod["spec"].get("automountServiceAccountToken", True)
    }
    assert accounts == {name: f"proxyfleet-{name}" for name in ("web", "worker", "sync")}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_meet_the_pods(overlay: str) -> None:
    labels = {name: pod["metadata"]["labels"].items() for name, pod in pods(overlay)}
    selectors = {
        f"{found['kind']} {found['metadata']['name']}": found["spec"]["selector"]
        for found in manifests(overlay, "Service|PodDisruptionBudget|Deployment")
    }
    for what, selector in selectors.items():
        wanted = selector.get("matchLabels", selector).items()
        assert len([name for name, own in labels.items() if wanted <= own]) == 1, what


def test_secrets_of_providers_and_of_the_api_may_be_absent() -> None:
    worker = {volume["name"]: volume for volume in processes("prod")["worker"]["spec"]["volumes"]}
    assert worker["kvm-ssh"]["secret"]["optional"]
    assert worker["proxmox-token"]["secret"]["optional"]
    [token] = [each for each in main(processes("prod")["web"])["env"] if each["name"] == "PROXYFLEET_DISCOVERY_TOKEN"]
    assert token["valueFrom"]["secretKeyRef"] == {"name": "discovery-token", "key": "token", "optional": True}


def test_make_installs_deploys_and_undeploys(installed: Cluster, tmp_path: Path) -> None:
    kubectl = binaries.find(Program.KUBECTL)

    def make(*arguments: str) -> str:
        environment = os.environ | {"KUBECONFIG": str(installed.kubeconfig), "NO_PROXY": "127.0.0.1"}
        environment["PATH"] = f"{kubectl.parent}:{environment['PATH']}"
        # The names of a `make` around us are not for this one.
        environment = {name: value for name, value in environment.items() if not name.startswith(("MAKE", "MFLAGS"))}
        done = subprocess.run(
            ["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    key, hosts = tmp_path / "id_ed25519", tmp_path / "known_hosts"
    key.write_text("the key")
    hosts.write_text("the hosts")
    make("deploy", "IMG=registry.example.com/proxyfleet:sha-0123456789ab")
    make("kvm-ssh-secret", f"KVM_SSH_KEY={key}", f"KVM_KNOWN_HOSTS={hosts}")
    make("proxmox-token-secret", f"PROXMOX_TOKEN={key}", f"PROXMOX_CA={hosts}")
    try:
        deployments = installed.get("deployments", "-n", SYSTEM)["items"]
        images = {container["image"] for found in deployments for container in containers(found["spec"]["template"])}
        assert images == {"registry.example.com/proxyfleet:sha-0123456789ab", "valkey/valkey:9"}
        secrets = {
            found["metadata"]["name"]: found["data"] for found in installed.get("secrets", "-n", SYSTEM)["items"]
        }
        assert set(secrets["kvm-ssh"]) == {"id_ed25519", "known_hosts"}
        assert set(secrets["proxmox-token"]) == {"token", "ca.pem"}
        make("deploy", "IMG=registry.example.com/proxyfleet:next")
        again = {found["metadata"]["name"]: found["data"] for found in installed.get("secrets", "-n", SYSTEM)["items"]}
        assert again["proxyfleet"] == secrets["proxyfleet"], "the password is the database's"
    finally:
        make("undeploy")
    assert installed.get("deployments,statefulsets,services", "-n", SYSTEM)["items"] == []
    assert installed.get("secret", "proxyfleet", "-n", SYSTEM)["data"]
    for name in ("proxyfleet", "kvm-ssh", "proxmox-token"):
        installed.kubectl("delete", "secret", name, "-n", SYSTEM)
    for part in ("rbac", "crd"):  # what others of this session go on with
        installed.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(DEPLOY / part))


def test_the_quickstart_proxy_is_of_an_entry_that_is_configured() -> None:
    sample = yaml.safe_load((DEPLOY / "samples" / "proxy_kubernetes.yaml").read_text())
    assert re.search(
        rf"name: {sample['spec']['provider']}$", (DEPLOY / "base" / "providers.yaml").read_text(), re.MULTILINE
    )

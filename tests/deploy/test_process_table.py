"""A server and a cluster run what `make run` runs, with settings that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxyfleet.conf import Settings
from proxyfleet.local.addresses import Address
from proxyfleet.local.programs import programs
from tests.deploy.manifests import DEPLOY, OVERLAYS, ROOT, config_map, containers, main, processes

TABLE = {
    program.name: program
    for program in programs(Address.parse(":8090"), Path("/var/lib/proxyfleet"), cluster_sync=True, flower=True)
}
VARIABLES = {f"PROXYFLEET_{name.upper()}" for name in Settings.model_fields}
REQUIRED = {
    "PROXYFLEET_DATABASE_URL": "postgres://user:password@host/name",
    "PROXYFLEET_BROKER_URL": "redis://host/0",
    "PROXYFLEET_SECRET_KEY": "x" * 64,
}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return services


def test_compose_runs_the_processes_of_make_run(services: dict[str, Any]) -> None:
    ours = {name: service["command"] for name, service in services.items() if service.get("build")}
    assert ours == {name: list(program.argv) for name, program in TABLE.items()}


def test_no_bridge_runs_where_no_cluster_is_configured(services: dict[str, Any]) -> None:
    table = programs(Address.parse(":8090"), Path("/var/lib/proxyfleet"), cluster_sync=False, flower=True)
    unasked = {name for name, service in services.items() if service.get("build") and "profiles" not in service}
    assert unasked == {program.name for program in table}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_cluster_runs_the_same_processes(overlay: str) -> None:
    pods = processes(overlay)
    ours = {name: main(pod)["command"] for name, pod in pods.items()}
    wanted = {name: list(program.argv) for name, program in TABLE.items()}
    migrate = wanted.pop("migrate")
    assert ours == wanted
    assert [first["command"] for pod in pods.values() for first in pod["spec"]["initContainers"]] == [migrate] * len(
        ours
    )


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_has_the_time_that_it_takes_to_end(overlay: str, services: dict[str, Any]) -> None:
    for name, pod in processes(overlay).items():
        assert pod["spec"]["terminationGracePeriodSeconds"] >= TABLE[name].grace_seconds, name
    assert float(services["sync"]["stop_grace_period"].removesuffix("s")) >= TABLE["sync"].grace_seconds


def test_compose_sets_only_variables_that_exist(services: dict[str, Any]) -> None:
    assert set(services["web"]["environment"]) <= VARIABLES | {"KUBECONFIG"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_cluster_sets_only_variables_that_exist_to_values_that_are_taken(
    overlay: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configured = config_map(overlay, "settings")
    named = {
        variable["name"]: variable.get("value")
        for pod in processes(overlay).values()
        for container in containers(pod)
        for variable in container.get("env", ())
    }
    assert set(configured) | set(named) <= VARIABLES | {"FLOWER_ADDRESS"}
    assert set(REQUIRED) <= set(named)

    providers = tmp_path / "providers.yaml"
    providers.write_text(config_map(overlay, "providers-config")["providers.yaml"])
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in (REQUIRED | configured | {"PROXYFLEET_PROVIDERS_CONFIG": str(providers)}).items():
        monkeypatch.setenv(name, value)
    assert "localhost" in Settings().allowed_hosts, "the probes of the kubelet name no other host"  # type: ignore[call-arg]


def test_the_files_of_secrets_are_where_the_sample_looks_for_them() -> None:
    sample = (DEPLOY / "samples" / "providers-config.yaml").read_text()
    mounted = {mount["mountPath"] for mount in main(processes("prod")["worker"])["volumeMounts"]}
    for path in re.findall(r"(?:sshKeyFile|knownHostsFile|tokenFile|caFile): (\S+)", sample):
        assert str(Path(path).parent) in mounted

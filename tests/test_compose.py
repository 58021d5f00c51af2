"""A server runs what `make run` runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from proxyfleet.conf import Settings
from proxyfleet.local.addresses import Address
from proxyfleet.local.programs import programs

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return services


def test_compose_runs_the_processes_of_make_run(services: dict[str, Any]) -> None:
    table = programs(Address.parse(":8090"), Path("/var/lib/proxyfleet"), cluster_sync=True)
    ours = {name: service["command"] for name, service in services.items() if service.get("build")}
    assert ours == {program.name: list(program.argv) for program in table}


def test_no_bridge_runs_where_no_cluster_is_configured(services: dict[str, Any]) -> None:
    table = programs(Address.parse(":8090"), Path("/var/lib/proxyfleet"), cluster_sync=False)
    unasked = {name for name, service in services.items() if service.get("build") and "profiles" not in service}
    assert unasked == {program.name for program in table}


def test_compose_sets_only_variables_that_exist(services: dict[str, Any]) -> None:
    known = {f"PROXYFLEET_{name.upper()}" for name in Settings.model_fields} | {"KUBECONFIG"}
    assert set(services["web"]["environment"]) <= known


def test_the_image_holds_every_package_that_the_settings_name() -> None:
    copied = {line.split()[1] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("COPY")}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "bench"}
    assert packages <= copied

"""What ``run`` starts: the servers that the environment doesn't name, a probe target if needed, and the product."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import MutableMapping
from pathlib import Path

from proxyfleet.conf import Settings
from proxyfleet.local.addresses import Address, free_port, internet_reachable
from proxyfleet.local.errors import LocalError
from proxyfleet.local.folders import private_folder
from proxyfleet.local.postgres import Postgres
from proxyfleet.local.processes import Program
from proxyfleet.local.programs import programs
from proxyfleet.local.target import Certificates
from proxyfleet.local.valkey import Valkey

LAST_RUN_SECONDS = 3
"""How long the processes of a run that was just killed may take to let go of the port."""


def deployment(var: Path, environment: MutableMapping[str, str]) -> list[Program]:
    """All programs in the order of their start, on state in ``var``. What ``environment`` leaves open is set in it.

    Raises LocalError and conf.ImproperEnvironment for what would keep the product from starting.
    """
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    environment["PYTHONUNBUFFERED"] = "1"
    environment.setdefault("PROXYFLEET_STATE_DIR", str(var))
    environment.setdefault("PROXYFLEET_HTTPS", "false")
    environment.setdefault("PROXYFLEET_DISCOVERY_ADDR", "127.0.0.1:8090")
    if "PROXYFLEET_SECRET_KEY" not in environment:
        environment["PROXYFLEET_SECRET_KEY"] = _secret_key(var)
    address = _free_address(environment["PROXYFLEET_DISCOVERY_ADDR"])
    return [*_servers(var, environment), *_target(var, environment), *programs(address, var)]


def _free_address(text: str) -> Address:
    try:
        address = Address.parse(text)
    except ValueError as error:
        raise LocalError(f"PROXYFLEET_DISCOVERY_ADDR: {error}") from error
    address.require_free(patience=LAST_RUN_SECONDS)
    return address


def _servers(var: Path, environment: MutableMapping[str, str]) -> list[Program]:
    started: list[Program] = []
    for variable, server in (("PROXYFLEET_DATABASE_URL", Postgres), ("PROXYFLEET_BROKER_URL", Valkey)):
        if variable not in environment:
            ours = server(var)
            ours.prepare()
            environment[variable] = ours.url
            started.append(ours.program)
    return started


def _target(var: Path, environment: MutableMapping[str, str]) -> list[Program]:
    """Probes must have something to fetch: our own target, when the usual one is out of reach and no other is named."""
    usual = Settings.model_fields["healthcheck_url"].default
    if "PROXYFLEET_HEALTHCHECK_URL" in environment or internet_reachable(str(usual)):
        return []
    certificates = Certificates(var / "target")
    certificates.prepare()
    https, http = free_port(), free_port()
    environment["PROXYFLEET_HEALTHCHECK_URL"] = f"https://localhost:{https}/generate_204"
    environment.setdefault("PROXYFLEET_PROBE_CA_FILE", str(certificates.authority))
    sys.stdout.write(f"{usual} can't be reached from here: probes fetch https://localhost:{https}/ on this machine.\n")
    sys.stdout.flush()
    ports = ["--https-port", str(https), "--http-port", str(http)]
    command = ["python", "-m", "proxyfleet.local.target", "--folder", str(certificates.folder), *ports]
    return [Program("target", command, ready=Address("127.0.0.1", http).answers)]


def _secret_key(var: Path) -> str:
    """The same in every run, so that sessions outlive a restart."""
    path = private_folder(var) / "secret-key"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(48))
    return path.read_text()

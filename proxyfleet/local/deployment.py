"""What ``run`` starts: the servers that the environment doesn't name, a probe target if needed, and the product."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from proxyfleet.conf import Settings, settings
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


def deployment(var: Path) -> list[Program]:
    """All programs in the order of their start, on state in ``var``. Completes the environment they inherit.

    Raises LocalError and conf.ImproperEnvironment for what would keep the product from starting.
    """
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    os.environ["PYTHONUNBUFFERED"] = "1"
    os.environ.setdefault("PROXYFLEET_STATE_DIR", str(var))
    os.environ.setdefault("PROXYFLEET_HTTPS", "false")
    os.environ.setdefault("PROXYFLEET_DISCOVERY_ADDR", "127.0.0.1:8090")
    if "PROXYFLEET_SECRET_KEY" not in os.environ:
        os.environ["PROXYFLEET_SECRET_KEY"] = _secret_key(var)
    servers, target = _servers(var), _target(var)
    address = _free_address(settings().discovery_addr)
    return [*servers, *target, *programs(address, var)]


def _free_address(text: str) -> Address:
    try:
        address = Address.parse(text)
    except ValueError as error:
        raise LocalError(f"PROXYFLEET_DISCOVERY_ADDR: {error}") from error
    address.require_free(patience=LAST_RUN_SECONDS)
    return address


def _servers(var: Path) -> list[Program]:
    started: list[Program] = []
    for variable, server in (("PROXYFLEET_DATABASE_URL", Postgres), ("PROXYFLEET_BROKER_URL", Valkey)):
        if variable not in os.environ:
            ours = server(var)
            ours.prepare()
            os.environ[variable] = ours.url
            started.append(ours.program)
    return started


def _target(var: Path) -> list[Program]:
    """Probes must have something to fetch: our own target, when the usual one is out of reach and no other is named."""
    usual = Settings.model_fields["healthcheck_url"].default
    if "PROXYFLEET_HEALTHCHECK_URL" in os.environ or internet_reachable(str(usual)):
        return []
    certificates = Certificates(var / "target")
    certificates.prepare()
    https, http = free_port(), free_port()
    os.environ["PROXYFLEET_HEALTHCHECK_URL"] = f"https://localhost:{https}/generate_204"
    os.environ.setdefault("PROXYFLEET_PROBE_CA_FILE", str(certificates.authority))
    sys.stdout.write(f"{usual} can't be reached from here: probes fetch https://localhost:{https}/ on this machine.\n")
    sys.stdout.flush()
    ports = ["--https-port", str(https), "--http-port", str(http)]
    command = ["python", "-m", "proxyfleet.local.target", "--folder", str(certificates.folder), *ports]
    return [Program("target", command, ready=Address("127.0.0.1", http).answers)]


def _secret_key(var: Path) -> str:
    """The same in every run, so that sessions outlive a restart."""
    path = private_folder(var) / "secret-key"
    path.touch(mode=0o600)
    if not path.read_text():
        path.write_text(secrets.token_urlsafe(48))
    return path.read_text()

"""What ``run`` starts: the servers that the environment doesn't name, a probe target if needed, and the product."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from urllib.parse import urlsplit

from providers.config import load_providers_config
from providers.errors import ProviderError
from providers.process import driver as process_provider
from providers.registry import Providers
from proxyfleet.conf import Settings, settings
from proxyfleet.local import firstrun
from proxyfleet.local.addresses import Address, free_port, internet_reachable
from proxyfleet.local.errors import LocalError
from proxyfleet.local.folders import private_folder
from proxyfleet.local.postgres import Postgres, forget_other_servers
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
    os.environ["DJANGO_SETTINGS_MODULE"] = "proxyfleet.settings"  # a shell may name those of another project
    os.environ.setdefault("PYTHONWARNINGS", "ignore:You're running the worker with superuser privileges")
    os.environ.setdefault("PROXYFLEET_STATE_DIR", str(var))
    os.environ.setdefault("PROXYFLEET_LOG_FORMAT", "text" if sys.stdout.isatty() else "json")
    os.environ.setdefault("PROXYFLEET_METRICS_DIR", str(var / "metrics"))  # all of the machine by one page
    os.environ.setdefault("PROXYFLEET_HTTPS", "false")
    os.environ.setdefault("PROXYFLEET_DISCOVERY_ADDR", "127.0.0.1:8090")
    os.environ.setdefault("PROXYFLEET_SECRET_KEY", _kept_secret(var / "secret-key"))
    os.environ.setdefault("PROXYFLEET_DISCOVERY_TOKEN", _kept_secret(var / "api-token"))
    servers, target, story = _servers(var), _target(var), _story(var)
    address = _free_address(settings().discovery_addr)
    migrate, *rest = programs(address, var, cluster_sync=settings().cluster_sync)
    # Ctrl-C ended the proxies of the last run: none of them may be leased before that is on record.
    catch_up = Program("catch-up", ["python", "manage.py", "relist"], once=True)
    return [*servers, *target, migrate, catch_up, *rest, *story]


def stop_instances() -> None:
    """End the proxies that `process` entries run on this machine, which outlive the product on purpose."""
    conf = settings()
    providers = Providers(
        load_providers_config(conf.providers_config), fleet_id=conf.fleet_id, state_dir=conf.state_dir
    )
    for name in providers.names():
        if providers.entry(name).type == "process":
            provider = providers.get(name)
            listed = provider.list()
            damaged = [f"{name}://{instance_name}/damaged" for instance_name in listed.unreachable]
            for provider_id in [*(instance.provider_id for instance in listed), *damaged]:
                try:
                    provider.delete(provider_id)
                except ProviderError as error:
                    sys.stderr.write(f"{provider_id} may run on: {error.detail}\n")


def _free_address(text: str) -> Address:
    try:
        address = Address.parse(text)
    except ValueError as error:
        raise LocalError(f"PROXYFLEET_DISCOVERY_ADDR: {error}") from error
    address.require_free(patience=LAST_RUN_SECONDS)
    return address


def _servers(var: Path) -> list[Program]:
    started: list[Program] = []
    if "PROXYFLEET_DATABASE_URL" not in os.environ:
        forget_other_servers(os.environ)
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


def _story(var: Path) -> list[Program]:
    """The first run's proxies and what it tells of them, unless the operator has proxies of their own to run."""
    if "PROXYFLEET_PROVIDERS_CONFIG" in os.environ:
        return []
    providers = var / "providers.yaml"
    if not providers.exists():
        providers.write_text(firstrun.PROVIDERS)
    os.environ["PROXYFLEET_PROVIDERS_CONFIG"] = str(providers)
    external = Address("127.0.0.1", _kept_port(var / "external-port"))
    server = ["python", "-I", process_provider.SERVER, "--hostname", external.host, "--port", str(external.port)]
    return [
        Program("external", [*map(str, server), "--data-dir", str(var / "external")], ready=external.accepts),
        Program(
            "first-run", ["python", "-m", "proxyfleet.local.firstrun", str(external), _page()], once=True, plain=True
        ),
    ]


def _page() -> str:
    """What is fetched through the first lease: near what the probes fetch, since that is known to be in reach."""
    probed = urlsplit(str(settings().healthcheck_url))
    local = probed.hostname == "localhost"
    return f"{probed.scheme}://{probed.netloc}/" if local else firstrun.PAGE_WITH_INTERNET


def _kept_port(path: Path) -> int:
    """The same in every run while it is free, so that what is declared stays true."""
    kept = path.read_text().strip() if path.exists() else ""
    if kept.isdecimal() and 0 < int(kept) < 1 << 16 and Address("127.0.0.1", int(kept)).is_free:
        return int(kept)
    path.write_text(str(port := free_port()))
    return port


def _kept_secret(path: Path) -> str:
    """The same in every run: sessions and the command lines of yesterday go on to work. People write into it too."""
    private_folder(path.parent)
    path.touch(mode=0o600)
    if not path.read_text().strip():
        path.write_text(secrets.token_urlsafe(48))
    return path.read_text().strip()

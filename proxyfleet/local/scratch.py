"""Servers and a state folder that last for one command: what tests and checks run on."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from proxyfleet.local.postgres import forget_other_servers
from proxyfleet.local.servers import LocalServers

SERVERS = ("PROXYFLEET_DATABASE_URL", "PROXYFLEET_BROKER_URL")


@contextmanager
def scratch_deployment(environment: MutableMapping[str, str]) -> Iterator[None]:
    """Name what the settings require in ``environment``; what is named there already is left as it is.

    Raises LocalError when a server does not come up.
    """
    environment.setdefault("PROXYFLEET_SECRET_KEY", secrets.token_urlsafe(48))
    if all(environment.get(name) for name in SERVERS):
        yield
        return
    with (
        tempfile.TemporaryDirectory(prefix="proxyfleet-scratch-") as folder,
        LocalServers(Path(folder), throwaway=True) as servers,
    ):
        forget_other_servers(environment)
        environment.setdefault("PROXYFLEET_STATE_DIR", folder)
        environment.setdefault("PROXYFLEET_METRICS_DIR", f"{folder}/metrics")
        environment["PROXYFLEET_DATABASE_URL"] = servers.database_url
        environment["PROXYFLEET_BROKER_URL"] = servers.broker_url
        yield

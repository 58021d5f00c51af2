"""The product's own processes: one table, the same for a laptop and for a server (compose.yaml)."""

from __future__ import annotations

from pathlib import Path

from proxyfleet.local.addresses import Address
from proxyfleet.local.processes import Program

WEB_WORKERS = 2
WEB_THREADS = 4

ALONE = ("--without-mingle", "--without-gossip")
"""Workers need to know nothing of each other, and asking around costs a second at the start."""

FLOWER_PORT = 5555

SYNC_GRACE_SECONDS = 40
"""Longer than a bridge takes to end the calls that are under way."""


def programs(address: Address, state: Path, *, cluster_sync: bool, flower: bool = False) -> list[Program]:
    """What runs on top of the servers, in the order of its start. ``state`` is this machine's own folder.

    A server has ``flower`` too, which listens on all addresses unless ``FLOWER_ADDRESS`` names one.
    """
    celery = ["celery", "--quiet", "--app", "proxyfleet"]
    sync = [Program("sync", ["python", "manage.py", "k8s_sync"], grace_seconds=SYNC_GRACE_SECONDS)]
    listen = ["--host", address.host, "--port", str(address.port)]
    size = ["--workers", str(WEB_WORKERS), "--blocking-threads", str(WEB_THREADS)]
    return [
        Program("migrate", ["python", "manage.py", "migrate", "--no-input", "--verbosity", "0"], once=True),
        Program(
            "web",
            ["granian", "--log-level", "warning", "--interface", "wsgi", *listen, *size, "proxyfleet.wsgi:application"],
            ready=address.answers,
        ),
        Program("worker", [*celery, "worker", "--pool", "prefork", *ALONE]),
        Program("beat", [*celery, "beat", "--schedule", str(state / "beat-schedule")]),
        *(sync if cluster_sync else []),
        *([Program("flower", [*celery, "flower", f"--port={FLOWER_PORT}"])] if flower else []),
    ]

"""``python -m tests.cluster``: get, start and end a Kubernetes that runs in the background. See ``--help``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys

from proxyfleet.local.folders import private_folder
from tests.cluster import binaries, node, pki, programs
from tests.cluster.apiserver import ApiServer
from tests.cluster.daemon import Daemon
from tests.cluster.errors import ClusterError
from tests.cluster.node import ROOT, Node
from tests.cluster.output import say

FOLDER = ROOT / "var" / "cluster"
API_SERVER = Daemon("API server", FOLDER)
NODE = Daemon("node", FOLDER)
KUBECONFIG = pki.Pki(FOLDER / "pki").kubeconfig(pki.ADMIN)

VERBS = {
    "build": "get etcd, kube-apiserver and kubectl: given, cached, or built in about five minutes",
    "build-node": "get what a node needs on top, in about five minutes more",
    "up": "start an API server in the background and print how to reach it",
    "node-up": "the same with a node that runs pods; needs root and Debian",
    "down": "end what was started and remove its data",
    "status": "tell what runs",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real Kubernetes to test on.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, explained in VERBS.items():
        verbs.add_parser(verb, help=explained)
    verbs.add_parser("serve").add_argument("name", choices=[API_SERVER.name, NODE.name])
    asked = parser.parse_args()
    try:
        match asked.verb:
            case "build":
                binaries.obtain(programs.API_SERVER_TIER)
            case "build-node":
                node.prepare()
            case "up":
                up()
                show_access()
            case "node-up":
                node_up()
                show_access()
            case "down":
                down()
            case "status":
                show_status()
            case "serve":
                serve(asked.name)
    except ClusterError as error:
        say(str(error))
        return 1
    return 0


def up() -> None:
    binaries.obtain(programs.API_SERVER_TIER)
    if API_SERVER.process() is None:
        down()
        API_SERVER.start()
        link = private_folder(FOLDER / "bin") / programs.Program.KUBECTL
        link.symlink_to(binaries.find(programs.Program.KUBECTL))


def node_up() -> None:
    node.prepare()
    up()
    if NODE.process() is None:
        NODE.start()


def down() -> None:
    NODE.stop()
    API_SERVER.stop()
    shutil.rmtree(FOLDER, ignore_errors=True)


def serve(name: str) -> None:
    """Be the daemon ``name`` until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    daemon, part = (API_SERVER, ApiServer(FOLDER)) if name == API_SERVER.name else (NODE, Node(FOLDER))
    with part:
        daemon.announce()
        signal.pause()


def show_access() -> None:
    """In a form for ``eval``."""
    print(f"export KUBECONFIG={KUBECONFIG}")  # noqa: T201 - a command line's answer
    print(f"export PATH={FOLDER / 'bin'}:$PATH")  # noqa: T201 - the same


def show_status() -> None:
    for daemon in (API_SERVER, NODE):
        process = daemon.process()
        print(f"{daemon.name}: {f'process {process.pid}' if process else 'not running'}")  # noqa: T201 - the same


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.cluster``: get, start and end a Kubernetes that runs in the background. See ``--help``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path

from proxyfleet.local.folders import private_folder
from tests.cluster import binaries, node, pki, programs
from tests.cluster.apiserver import ApiServer
from tests.cluster.daemon import Daemon
from tests.cluster.errors import ClusterError
from tests.cluster.node import ROOT, Node
from tests.cluster.output import say

STATE = ROOT / "var" / "cluster"
API_SERVER = "api-server"
NODE = "node"

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
    parser.add_argument("--state", type=Path, default=STATE, help="the folder of what runs (default: %(default)s)")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, explained in VERBS.items():
        verbs.add_parser(verb, help=explained)
    verbs.add_parser("serve").add_argument("name", choices=[API_SERVER, NODE])
    asked = parser.parse_args()
    state = asked.state.resolve()
    try:
        match asked.verb:
            case "build":
                binaries.obtain(programs.API_SERVER_TIER)
            case "build-node":
                node.prepare()
            case "up":
                up(state)
                show_access(state)
            case "node-up":
                node_up(state)
                show_access(state)
            case "down":
                down(state)
            case "status":
                show_status(state)
            case "serve":
                serve(state, asked.name)
    except ClusterError as error:
        say(str(error))
        return 1
    return 0


def up(state: Path) -> None:
    binaries.obtain(programs.API_SERVER_TIER)
    server = Daemon(API_SERVER, state)
    if server.process() is None:
        down(state)
        server.start()
        link = private_folder(state / "bin") / programs.Program.KUBECTL
        link.symlink_to(binaries.find(programs.Program.KUBECTL))


def node_up(state: Path) -> None:
    node.prepare()
    up(state)
    pods = Daemon(NODE, state)
    if pods.process() is None:
        pods.start()


def down(state: Path) -> None:
    for name in (NODE, API_SERVER):
        Daemon(name, state).stop()
    shutil.rmtree(state, ignore_errors=True)


def serve(state: Path, name: str) -> None:
    """Be the daemon ``name`` until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with ApiServer(state) if name == API_SERVER else Node(state):
        Daemon(name, state).announce()
        signal.pause()


def show_access(state: Path) -> None:
    """In a form for ``eval``."""
    kubeconfig = pki.Pki(state / "pki").kubeconfig(pki.ADMIN)
    print(f"export KUBECONFIG={kubeconfig}\nexport PATH={state / 'bin'}:$PATH")  # noqa: T201 - the answer


def show_status(state: Path) -> None:
    for name in (API_SERVER, NODE):
        process = Daemon(name, state).process()
        print(f"{name}: {f'process {process.pid}' if process else 'not running'}")  # noqa: T201 - the answer


if __name__ == "__main__":
    sys.exit(main())

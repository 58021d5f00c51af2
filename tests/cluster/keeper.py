"""Runs one node until its input ends or it is told to end, and then leaves nothing of it.

A process of its own, so that a node also ends in order when whoever asked for it is killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import requests

from proxyfleet.local.processes import Guard, Program
from tests.cluster import access, binaries, children, images, inside, pki, place, programs
from tests.cluster.apiserver import flags
from tests.cluster.errors import ClusterError
from tests.cluster.nodeconfig import NodeConfig
from tests.cluster.output import say

READY = "ready"
"""The first word of the line that it prints once the node is; the second is the node's address."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    folder, *archives = map(Path, sys.argv[1:])
    try:
        with ExitStack() as stack:
            address = _start(folder, archives, stack)
            print(READY, address, flush=True)  # noqa: T201 - for the one who started us
            sys.stdin.read()
    except ClusterError as error:
        say(str(error))
        sys.exit(1)


def _start(folder: Path, archives: Sequence[Path], stack: ExitStack) -> str:
    """Start controller manager, scheduler and node of the cluster in ``folder``, which ``stack`` ends.

    Returns the node's address.
    """
    keys = pki.Pki(folder / "pki")
    where = stack.enter_context(place.taken())
    config = NodeConfig(folder / "node", where, keys)
    config.write()
    os.environ["PATH"] = f"{binaries.find(programs.Program.CONTAINERD).parent}:{os.environ['PATH']}"
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"  # the kubelet would ask a link-local address who it is
    guard = stack.enter_context(Guard())
    for program in (_controller_manager(keys), _scheduler(keys), _node(folder, config, [images.archive(), *archives])):
        stack.callback(children.start(program, guard, folder / f"{program.name}.log").stop)
    return where.address


def _controller_manager(keys: pki.Pki) -> Program:
    options = {
        "use-service-account-credentials": "true",
        "service-account-private-key-file": str(keys.token_key),
        "root-ca-file": str(keys.ca),
    }
    return _controller(programs.Program.CONTROLLER_MANAGER, keys.kubeconfig(pki.CONTROLLER_MANAGER), options)


def _scheduler(keys: pki.Pki) -> Program:
    return _controller(programs.Program.SCHEDULER, keys.kubeconfig(pki.SCHEDULER), {})


def _controller(program: programs.Program, kubeconfig: Path, options: dict[str, str]) -> Program:
    """The only one of its kind, which nobody asks anything."""
    kubeconfigs = dict.fromkeys(
        ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"), str(kubeconfig)
    )
    alone = {"leader-elect": "false", "secure-port": "0"}
    return Program(program, [str(binaries.find(program)), *flags(kubeconfigs | alone | options)], grace_seconds=3)


def _node(folder: Path, config: NodeConfig, archives: Sequence[Path]) -> Program:
    kubeconfig = config.pki.kubeconfig(pki.KUBELET)
    options = {
        "config": str(config.kubelet),
        "kubeconfig": str(kubeconfig),
        "root-dir": "/var/lib/kubelet",
        "cert-dir": str(config.folder / "certificates"),
        "hostname-override": pki.NODE,
        "node-ip": config.place.address,
    }
    kubelet = [str(binaries.find(programs.Program.KUBELET)), *flags(options)]
    unshare = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    process_1 = [sys.executable, "-m", inside.__spec__.name, str(config.folder), *map(str, archives), "--", *kubelet]
    return Program(
        "node",
        [*unshare, *process_1],
        ready=lambda: _is_ready(kubeconfig),
        stop_signal=signal.SIGKILL,  # nothing in it is worth an orderly end
    )


def _is_ready(kubeconfig: Path) -> bool:
    with access.session(kubeconfig) as api:
        try:
            node = api.get(f"{access.server(kubeconfig)}/api/v1/nodes/{pki.NODE}", timeout=2)
        except requests.RequestException:
            return False
    conditions = node.json()["status"]["conditions"] if node.ok else []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


if __name__ == "__main__":
    main()

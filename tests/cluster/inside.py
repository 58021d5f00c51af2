"""Process 1 of a node: containerd and the kubelet, with file systems and process numbers of their own.

Started in new mount and pid namespaces. When it ends, however it ends, the kernel kills whatever the node started and
forgets its mounts. Prints what fails; runs until one of the two ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from proxyfleet.local.processes import wait_until

HIDDEN = ("/run", "/var/lib", "/var/log")
"""Here the node writes at fixed paths: it has folders of its own there."""

SYSCTLS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
"""What a kubelet demands of its machine. It is shown files that say so; the machine stays as it is."""

SOCKET = "/run/containerd/containerd.sock"


def main() -> None:
    end = sys.argv.index("--")
    folder, *archives = sys.argv[1:end]
    kubelet = sys.argv[end + 1 :]
    _mount(Path(folder))
    containerd = subprocess.Popen(["containerd", "--config", f"{folder}/containerd.toml"])
    if not wait_until(lambda: containerd.poll() is not None or _answers(), 30) or containerd.poll() is not None:
        sys.exit("containerd did not start")
    for archive in archives:
        command = ["ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import", archive]
        subprocess.run(command, check=True)
    programs = {containerd.pid: "containerd", subprocess.Popen(kubelet).pid: "the kubelet"}
    # Process 1 inherits every orphan, and has to see its end.
    while (ended := os.wait()[0]) not in programs:
        pass
    sys.exit(f"{programs[ended]} ended")


def _mount(folder: Path) -> None:
    # Volumes that the kubelet mounts have to be seen in the containers' mount namespaces.
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    for number, target in enumerate(HIDDEN):
        own = folder / f"hidden-{number}"
        own.mkdir()
        subprocess.run(["mount", "--bind", own, target], check=True)
    for number, (name, value) in enumerate(SYSCTLS.items()):
        shown = folder / f"sysctl-{number}"
        shown.write_text(f"{value}\n")
        subprocess.run(["mount", "--bind", shown, f"/proc/sys/{name}"], check=True)


def _answers() -> bool:
    asked = subprocess.run(["ctr", "--address", SOCKET, "version"], capture_output=True, check=False)
    return asked.returncode == 0


if __name__ == "__main__":
    main()

"""A libvirt host of the tests' own: libvirtd and sshd in namespaces where nothing of the machine's own can be touched.

``python -m tests.kvm`` makes the namespaces (network, mounts, process ids); everything started here ends with them.
"""

from __future__ import annotations

import grp
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SSH_PORT = 2222
SSHD = ("sshd", "sshd-session", "sshd-auth")
"""The listener, and what newer versions start for each connection."""
OPERATOR = "operator"
"""A user who is in the group libvirt, and nobody otherwise."""
GATEWAY = "192.168.231.1"
"""The host's address in the guests' network."""

NETWORK = f"""
<network>
  <name>egress</name>
  <bridge name='virbr-egress' stp='off' delay='0'/>
  <ip address='{GATEWAY}' netmask='255.255.255.0'>
    <dhcp><range start='192.168.231.10' end='192.168.231.250'/></dhcp>
  </ip>
</network>
"""
POOL = "<pool type='dir'><name>{name}</name><target><path>{path}</path></target></pool>"
LIBVIRTD_CONF = """
unix_sock_group = "libvirt"
unix_sock_rw_perms = "0770"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "2:file:{root}/libvirtd.log"
"""
QEMU_CONF = """
stdio_handler = "file"
security_driver = "none"
cgroup_controllers = [ ]
namespaces = [ ]
"""
SSHD_CONF = """
Port {port}
ListenAddress 127.0.0.1
HostKey {root}/ssh/host_ed25519
PidFile {root}/sshd.pid
AuthorizedKeysFile {root}/ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
AllowStreamLocalForwarding {forwarding}
ForceCommand {forced}
MaxSessions 64
MaxStartups 50:30:100
"""
OWN_FOLDERS = {
    "etc": "/etc/libvirt",
    "lib": "/var/lib/libvirt",
    "run": "/run/libvirt",
    "cache": "/var/cache/libvirt",
    "log": "/var/log/libvirt",
}


class Host:
    """One hypervisor, reachable at 127.0.0.1 port SSH_PORT as root and as OPERATOR with ``key``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ssh = root / "ssh"
        self.key = self.ssh / "id_ed25519"
        self.known_hosts = self.ssh / "known_hosts"
        self.pools = root / "pools"

    def start(self) -> None:
        self._take_folders()
        self._hide_kvm()
        self._add_operator()
        self._make_keys()
        self.start_libvirtd()
        self.start_sshd()
        self._virsh_define("net", NETWORK, "egress")
        self.add_pool("default")
        # libvirt asks QEMU what it can do when that is first needed, which would fall into some test's call.
        self.virsh("domcapabilities", "--machine", "q35")

    def stop(self) -> None:
        """Give the folders back: what runs ends with the namespaces."""
        self.clear()
        self.kill_sshd()
        for name in ("libvirtd", "dnsmasq"):
            self._kill(name)
        for target in OWN_FOLDERS.values():
            run("umount", "--lazy", target)

    def clear(self) -> None:
        """No domain, and no volume but complete base images."""
        for name in self.virsh("list", "--all", "--name").split():
            self.virsh("undefine", "--nvram", "--managed-save", name)
            if name in self.virsh("list", "--name").split():
                self.virsh("destroy", name)
        for pool in self.virsh("pool-list", "--name").split():
            self.virsh("pool-refresh", pool)
            volumes = [line.split()[0] for line in self.virsh("vol-list", pool).splitlines() if line.strip()]
            bases = {volume.removesuffix(".complete") for volume in volumes if volume.endswith(".complete")}
            for volume in volumes:
                if volume.removesuffix(".complete") not in bases:
                    self.virsh("vol-delete", "--pool", pool, volume)

    def add_pool(self, name: str) -> Path:
        """A directory pool; a mount point made at its path before stays what it is."""
        path = self.pools / name
        path.mkdir(parents=True, exist_ok=True)
        self._virsh_define("pool", POOL.format(name=name, path=path), name)
        return path

    def virsh(self, *arguments: str, stdin: str | None = None) -> str:
        return run("virsh", "--connect", "qemu:///system", "--quiet", *arguments, stdin=stdin)

    def volumes(self, pool: str = "default") -> set[str]:
        return {path.name for path in (self.pools / pool).iterdir()}

    def complete_bases(self, pool: str = "default") -> set[str]:
        """The volumes that are base images, and their marks."""
        volumes = self.volumes(pool)
        return {name for name in volumes if f"{name.removesuffix('.complete')}.complete" in volumes}

    def nvram(self) -> set[str]:
        folder = Path("/var/lib/libvirt/qemu/nvram")
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    def start_libvirtd(self) -> None:
        run("/usr/sbin/libvirtd", "--daemon", "--pid-file", str(self.root / "libvirtd.pid"))

    def start_sshd(self, *, forwarding: str = "yes", forced: str = "none") -> None:
        configuration = self.root / "sshd_config"
        configuration.write_text(SSHD_CONF.format(root=self.root, port=SSH_PORT, forwarding=forwarding, forced=forced))
        run("/usr/sbin/sshd", "-f", str(configuration), "-E", str(self.root / "sshd.log"))
        wait_until(lambda: _answers(SSH_PORT), "sshd to answer")

    def kill_sshd(self) -> None:
        """The server and every connection it has."""
        wait_until(lambda: not any(self._kill(name) for name in SSHD), "sshd to end")

    @contextmanager
    def sshd_down(self) -> Iterator[None]:
        self.kill_sshd()
        try:
            yield
        finally:
            self.start_sshd()

    @contextmanager
    def without_forwarding(self) -> Iterator[None]:
        """An sshd that forwards no sockets, so that only the exec of virt-ssh-helper is left."""
        self.kill_sshd()
        self.start_sshd(forwarding="no")
        try:
            yield
        finally:
            self.kill_sshd()
            self.start_sshd()

    @contextmanager
    def without_helper(self) -> Iterator[None]:
        """An sshd that forwards sockets, and runs no command."""
        self.kill_sshd()
        self.start_sshd(forced="echo no helper here >&2; exit 1")
        try:
            yield
        finally:
            self.kill_sshd()
            self.start_sshd()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """libvirtd stands still, while sshd goes on and accepts for it."""
        pid = int((self.root / "libvirtd.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def packets_dropped(self) -> Iterator[None]:
        """The road to sshd swallows everything, in both directions."""
        rules = [("INPUT", "--dport"), ("OUTPUT", "--sport")]
        for chain, side in rules:
            run("iptables", "-I", chain, "-p", "tcp", side, str(SSH_PORT), "-j", "DROP")
        try:
            yield
        finally:
            for chain, side in rules:
                run("iptables", "-D", chain, "-p", "tcp", side, str(SSH_PORT), "-j", "DROP")

    @contextmanager
    def another_host_key(self) -> Iterator[None]:
        key, kept = self.ssh / "host_ed25519", self.ssh / "host_ed25519.kept"
        self.kill_sshd()
        key.rename(kept)
        generate_key(key)
        self.start_sshd()
        try:
            yield
        finally:
            self.kill_sshd()
            kept.rename(key)
            self.start_sshd()

    def _take_folders(self) -> None:
        for name, target in OWN_FOLDERS.items():
            own = self.root / name
            Path(target).mkdir(parents=True, exist_ok=True)
            if name in {"etc", "lib"}:
                shutil.copytree(target, own, symlinks=True, ignore=shutil.ignore_patterns("images", "*.sock"))
            own.mkdir(exist_ok=True)
            own.chmod(0o755)
            run("mount", "--bind", str(own), target)
        Path("/run/sshd").mkdir(exist_ok=True)
        shutil.rmtree("/etc/libvirt/qemu/networks", ignore_errors=True)
        Path("/etc/libvirt/libvirtd.conf").write_text(LIBVIRTD_CONF.format(root=self.root))
        Path("/etc/libvirt/qemu.conf").write_text(QEMU_CONF)

    def _hide_kvm(self) -> None:
        """Where /dev/kvm exists and does not work, libvirt probes it for minutes; the tests run the same everywhere."""
        if Path("/dev/kvm").exists():
            nothing = self.root / "no-kvm"
            nothing.touch(mode=0)
            run("mount", "--bind", str(nothing), "/dev/kvm")

    def _add_operator(self) -> None:
        group = grp.getgrnam("libvirt").gr_gid
        lines = {"passwd": f"{OPERATOR}:x:64000:{group}::/:/bin/sh\n", "shadow": f"{OPERATOR}:*:::::::\n"}
        for name, line in lines.items():
            own = self.root / name
            own.touch(mode=0o600)
            own.write_text(Path("/etc", name).read_text() + line)
            shutil.copystat(Path("/etc", name), own)
            run("mount", "--bind", str(own), f"/etc/{name}")

    def _make_keys(self) -> None:
        self.ssh.mkdir()
        generate_key(self.ssh / "host_ed25519")
        generate_key(self.key)
        (self.ssh / "authorized_keys").write_text(self.key.with_suffix(".pub").read_text())
        kind, text = (self.ssh / "host_ed25519.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{SSH_PORT} {kind} {text}\n")

    def define(self, domain: str) -> None:
        """A domain that someone else made."""
        description = self.root / "domain.xml"
        description.write_text(domain)
        self.virsh("define", str(description))

    def _virsh_define(self, kind: str, xml: str, name: str) -> None:
        description = self.root / f"{name}.xml"
        description.write_text(xml)
        self.virsh(f"{kind}-define", str(description))
        self.virsh(f"{kind}-start", name)

    def _kill(self, name: str) -> bool:
        """Whether there was one to kill: a server that forks has another meanwhile."""
        pids = self._pids_of(name)
        for pid in pids:
            with suppress(ProcessLookupError):  # it may end with another
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    @staticmethod
    def _pids_of(name: str) -> list[int]:
        pids = []
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            except OSError:
                continue
            if fields["Name"] == name and not fields["State"].startswith("Z"):
                pids.append(int(fields["Pid"]))
        return pids


def generate_key(path: Path) -> None:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))


def run(*command: str, stdin: str | None = None) -> str:
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {result.stderr.strip()}")
    return result.stdout


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.05)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False

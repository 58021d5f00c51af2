"""The providers file: what is accepted, what is refused, and that each refusal names file, entry and key."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from providers.blocks import GcpBlock, KubernetesBlock, LibvirtBlock, ProcessBlock, ProxmoxBlock
from providers.config import ProvidersConfig, ProvidersConfigError, load_providers_config

EVERY_KEY = """\
providers:
  - name: gcp-eu
    type: gcp
    gcp: {project: my-project, network: crawl, networkTag: egress-proxy, diskSizeGb: 10}
  - name: kvm-home
    type: kvm
    kvm: &libvirt
      sshKeyFile: /etc/proxyfleet/kvm/id_ed25519
      knownHostsFile: /etc/proxyfleet/kvm/known_hosts
      hosts: [{name: host1, address: "10.0.0.5", user: libvirt, port: 22, pool: default, bridge: br0, virtType: qemu}]
      machineTypes: {small: {vcpus: 1, memoryMb: 1024}}
      images: {debian-13: {url: "https://example.com/d.qcow2", sha256: "SHA", format: qcow2, firmware: uefi}}
      diskSizeGb: 10
      vendorData: ""
      installGuestAgent: true
  - name: kvm-lab
    type: kvm2
    kvm2: {<<: *libvirt, diskSizeGb: 20}
  - name: pve
    type: proxmox
    proxmox:
      url: https://pve:8006
      tokenFile: /etc/proxyfleet/proxmox/token
      caFile: /etc/proxyfleet/proxmox/ca.pem
      nodes: [pve1]
      isoStorage: local
      templates: {debian-13: {vmid: 9000, node: pve1}}
      machineTypes: {small: {cores: 1, memoryMb: 1024}}
      storage: local-lvm
      bridge: vmbr0
      vlanTag: 20
      vmidRange: [20000, 20999]
      requestTimeoutSeconds: 30
      vendorData: ""
      installGuestAgent: true
  - name: in-cluster
    type: kubernetes
    kubernetes: {image: "ubuntu/squid:6.6-24.04_edge", namespace: proxies}
  - name: here
    type: process
    process: {command: [squid, -N, -a, "{port}"], host: 127.0.0.1, stateDir: /var/lib/proxyfleet}
""".replace("SHA", "0" * 64)

OBLIGATORY_KEYS = {
    "gcp": "{project: my-project}",
    "kvm": "{sshKeyFile: /k, knownHostsFile: /h, machineTypes: {small: {}}, hosts: [{name: host1}]}",
    "kvm2": "{sshKeyFile: /k, insecureIgnoreHostKey: true, machineTypes: {small: {}}, hosts: [{name: host1}]}",
    "proxmox": "{url: 'https://pve:8006', tokenFile: /t, caFile: /ca, nodes: [pve1], isoStorage: local,"
    " templates: {debian-13: {vmid: 9000}}, machineTypes: {small: {}}}",
    "kubernetes": "{}",
    "process": "{}",
}


def load(tmp_path: Path, text: str) -> ProvidersConfig:
    path = tmp_path / "providers.yaml"
    path.write_text(dedent(text))
    return load_providers_config(path)


def problems_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ProvidersConfigError) as caught:
        load(tmp_path, text)
    prefix = f"{tmp_path / 'providers.yaml'}: "
    assert str(caught.value).splitlines() == list(caught.value.problems), "one line each"
    assert all(problem.startswith(prefix) for problem in caught.value.problems)
    return [problem.removeprefix(prefix) for problem in caught.value.problems]


def one_entry(kind: str, block: str) -> str:
    return f"providers: [{{name: it, type: {kind}, {kind}: {block}}}]"


def test_no_file_means_no_providers() -> None:
    assert load_providers_config(None).entries == {}


def test_every_key_of_every_driver_is_accepted(tmp_path: Path) -> None:
    entries = load(tmp_path, EVERY_KEY).entries
    assert list(entries) == ["gcp-eu", "kvm-home", "kvm-lab", "pve", "in-cluster", "here"]
    assert [type(entry.block) for entry in entries.values()] == [
        GcpBlock,
        LibvirtBlock,
        LibvirtBlock,
        ProxmoxBlock,
        KubernetesBlock,
        ProcessBlock,
    ]
    lab = entries["kvm-lab"].block
    assert isinstance(lab, LibvirtBlock)
    assert (lab.disk_size_gb, lab.hosts[0].ssh_address, lab.hosts[0].virt_type) == (20, "10.0.0.5", "qemu")


@pytest.mark.parametrize("kind", OBLIGATORY_KEYS)
def test_the_obligatory_keys_suffice(tmp_path: Path, kind: str) -> None:
    assert load(tmp_path, one_entry(kind, OBLIGATORY_KEYS[kind])).entries["it"].type == kind


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("gcp", ["project"]),
        ("kvm", ["sshKeyFile", "knownHostsFile", "hosts", "machineTypes"]),
        ("kvm2", ["sshKeyFile", "knownHostsFile", "hosts", "machineTypes"]),
        ("proxmox", ["url", "tokenFile", "caFile", "nodes", "isoStorage", "templates", "machineTypes"]),
    ],
)
def test_every_missing_key_is_named_at_once(tmp_path: Path, kind: str, missing: list[str]) -> None:
    problems = problems_of(tmp_path, one_entry(kind, "{}"))
    assert {problem.split(": ")[1] for problem in problems} == {f"{kind}.{key}" for key in missing}
    assert all(": missing" in problem for problem in problems)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("gcp: {project: p1, zone: x}", "entry 'it': gcp.zone: unknown key"),
        ("gcp: {project: 7}", "entry 'it': gcp.project: Input should be a valid string"),
        ("gcp: {project: p1, disk_size_gb: 7}", "entry 'it': gcp.disk_size_gb: unknown key"),
        ("gcp: {project: p1}, process: {}", "entry 'it': process: does not belong to type 'gcp'"),
        ("gcp: {project: p1}, region: x", "entry 'it': region: unknown key"),
        ("gcp: {project: p1, project: p2}", "entry 'it': gcp.project: appears twice"),
        ("gcp: ", "entry 'it': gcp: missing; a mapping is needed here, {} to take every default"),
        ("name: it", "entry 'it': name: appears twice"),
    ],
)
def test_a_slip_names_entry_and_key(tmp_path: Path, block: str, problem: str) -> None:
    assert problem in problems_of(tmp_path, f"providers: [{{name: it, type: gcp, {block}}}]")


@pytest.mark.parametrize("name", ["a/b", "Up", "-a", "a.b", "a" * 64, "'a\\n'", "''", "7", "external"])
def test_a_name_that_cannot_be_addressed_is_refused(tmp_path: Path, name: str) -> None:
    (problem,) = problems_of(tmp_path, f"providers: [{{name: {name}, type: process, process: {{}}}}]")
    assert ": name: " in problem


@pytest.mark.parametrize(
    ("kind", "spoil", "key"),
    [
        ("kvm", ("name: host1", "name: a/b"), "kvm.hosts.0.name"),
        ("kvm", ("{name: host1}", "{name: host1}, {name: host1}"), "kvm.hosts"),
        ("kvm", ("[{name: host1}]", "[]"), "kvm.hosts"),
        ("kvm", ("small:", "S/1:"), "kvm.machineTypes.S/1"),
        ("kvm", ("knownHostsFile: /h", "knownHostsFile: /h, images: {a/b: {url: 'https://x/'}}"), "kvm.images.a/b"),
        ("kvm", ("knownHostsFile: /h", "knownHostsFile: /h, images: {a: {url: 'https://u:p@x/'}}"), "kvm.images.a.url"),
        ("proxmox", ("debian-13", "a/b"), "proxmox.templates.a/b"),
        ("proxmox", ("[pve1]", "[pve/1]"), "proxmox.nodes.0"),
        ("proxmox", ("[pve1]", "[pve1, pve2]"), "proxmox.templates"),
        ("proxmox", ("https://pve:8006", "http://pve:8006"), "proxmox.url"),
        ("proxmox", ("https://pve:8006", "https://root:hunter2@pve:8006"), "proxmox.url"),
        ("proxmox", ("nodes:", "vmidRange: [200, 100], nodes:"), "proxmox.vmidRange"),
        ("proxmox", ("nodes:", "vmidRange: [200], nodes:"), "proxmox.vmidRange.1"),
        ("process", ("{}", "{command: [squid, '{ports}', '{port}']}"), "process.command"),
        ("process", ("{}", "{command: [squid]}"), "process.command"),
        ("process", ("{}", "{command: [squid, '{port']}"), "process.command"),
        ("process", ("{}", "{host: 0.0.0.0}"), "process.host"),
        ("process", ("{}", "{host: localhost}"), "process.host"),
    ],
)
def test_a_bad_value_names_its_key(tmp_path: Path, kind: str, spoil: tuple[str, str], key: str) -> None:
    (problem,) = problems_of(tmp_path, one_entry(kind, OBLIGATORY_KEYS[kind].replace(*spoil)))
    assert problem.startswith(f"entry 'it': {key}: ")
    assert "hunter2" not in problem


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        """\
        providers:
          - {name: here, type: process, process: {port: 1}}
          - {name: here, type: gcp, gcp: {}}
          - {type: docker}
          - nonsense
        extra: 1
        """,
    )
    assert problems == [
        "extra: unknown key",
        "entry 'here': process.port: unknown key",
        "entry 'here': gcp.project: missing",
        "entry #3: name: missing",
        "entry #3: type: must be one of gcp, kvm, kvm2, proxmox, kubernetes, process",
        "entry #4: must be a mapping",
        "entry 'here': name: used by two entries",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "providers: the file must be a mapping with this one key"),
        ("providers: {}", "providers: must be a list of entries"),
        ("{}", "providers: must be a list of entries"),
        ("providers: [", "is not YAML: line 1: "),
        ("providers: []\nproviders: []", "providers: appears twice"),
        ("providers: [{name: it, type: process, process: !!python/object:os.system {}}]", "entry #1: line 1: "),
        ("providers: [&a {name: it, type: process, process: *a}]", "entry 'it': process.name: unknown key"),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems_of(tmp_path, text))


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    absent, binary = tmp_path / "absent.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, problem in ((absent, "can't be read: No such file"), (tmp_path, "Is a directory"), (binary, "UTF-8")):
        with pytest.raises(ProvidersConfigError, match=problem) as caught:
            load_providers_config(path)
        assert str(path) in str(caught.value)

"""The block that each provider type takes in the providers file: a frozen model each, keys exactly as written there.

Only what has no sensible default is obligatory. A secret is never a value here: a block names the file that holds it,
and the driver reads that file when it needs it, so that a rotated key just works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationInfo,
    field_validator,
)
from pydantic.alias_generators import to_camel

T = TypeVar("T", bound=Sized)


def _not_empty(value: T) -> T:
    if not value:
        raise ValueError("must not be empty")
    return value


def _no_credentials(url: str) -> str:
    """The value is left out of every message: it may hold the very password that does not belong here."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an http or https URL with a host")
    if parts.username or parts.password:
        raise ValueError("must not hold credentials")
    return url


def _server_url(url: str) -> str:
    parts = urlsplit(_no_credentials(url))
    if parts.scheme != "https" or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("must be https://host:port and nothing after it")
    return url.rstrip("/")


def _reachable_address(address: str) -> str:
    parsed = ip_address(address)
    if parsed.is_unspecified or parsed.is_multicast or parsed.is_link_local:
        raise ValueError("must be an IP address that clients can connect to")
    return address


def _command_line(command: tuple[str, ...]) -> tuple[str, ...]:
    placeholders = {name for word in command for _, name, _, _ in Formatter().parse(word) if name is not None}
    if unknown := placeholders - {"host", "port", "dir"}:
        raise ValueError(f"unknown placeholder {{{min(unknown)}}}: only {{host}}, {{port}} and {{dir}} are filled in")
    if "port" not in placeholders:
        raise ValueError("must pass {port} on: the server listens where it is told to")
    return command


def _ordered(limits: tuple[int, int]) -> tuple[int, int]:
    if limits[0] > limits[1]:
        raise ValueError("must be [lowest, highest]")
    return limits


def _network(text: object) -> object:
    if not isinstance(text, str):
        return text
    try:
        return ip_network(text)
    except ValueError as error:
        raise ValueError(f"must be a network as 10.0.0.0/8 or fd00::/8: {error}") from error


Port = Annotated[int, Field(ge=1, le=65535)]
DiskGb = Annotated[int, Field(ge=1, le=65536)]
Label = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
"""A name that is a part of a providerID: a DNS label needs no escaping anywhere."""
ImageKey = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]
"""As a Label, with dots: images are called by their versions, ubuntu-24.04."""
HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$|^[0-9A-Fa-f:]+$")]
Word = Annotated[str, Field(pattern=r"^\S+$")]
NodeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$")]
FilePath = Annotated[Path, Strict(strict=False)]
Url = Annotated[str, AfterValidator(_no_credentials)]
Cidr = Annotated[IPv4Network | IPv6Network, BeforeValidator(_network)]
Vmid = Annotated[int, Field(ge=100, le=999_999_999)]


class Block(BaseModel):
    """Strict: YAML has types, and ``vcpus: true`` or ``port: "22"`` is a slip."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel)


class GcpBlock(Block):
    """Credentials are Application Default Credentials: no key of this block holds or names one."""

    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9.:-]*[a-z0-9]$")]
    network: Word = "default"
    network_tag: Label = "egress-proxy"
    disk_size_gb: DiskGb = 10


class LibvirtHost(Block):
    name: Label
    """What ``placement.zone`` says, and the host's part of a providerID."""
    address: HostName = ""
    """Where its sshd answers; the name, when left out."""
    user: Word = "libvirt"
    port: Port = 22
    pool: Word = "default"
    """A storage pool that holds files (type dir, fs, netfs)."""
    bridge: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")] = None
    network: Word | None = None
    """One of libvirt's own networks, in place of a bridge of the host; br0, when both are left out."""
    virt_type: Literal["kvm", "qemu", "auto"] = "kvm"
    socket: Annotated[str, Field(pattern=r"^/\S+$")] = "/var/run/libvirt/libvirt-sock"
    """Of the daemon on the host: /var/run/libvirt/virtqemud-sock where the daemons are modular."""

    @field_validator("network")
    @classmethod
    def _one_network(cls, network: str | None, info: ValidationInfo) -> str | None:
        if network is not None and info.data.get("bridge") is not None:
            raise ValueError("must not be given together with bridge")
        return network

    @property
    def ssh_address(self) -> str:
        return self.address or self.name


class LibvirtMachineType(Block):
    vcpus: Annotated[int, Field(ge=1, le=1024)] = 1
    memory_mb: Annotated[int, Field(ge=128)] = 1024


class LibvirtImage(Block):
    url: Url
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    format: Literal["qcow2", "raw"] = "qcow2"
    firmware: Literal["uefi", "bios"] = "uefi"


class LibvirtBlock(Block):
    """Taken by kvm and by kvm2."""

    ssh_key_file: FilePath
    insecure_ignore_host_key: bool = False
    known_hosts_file: Annotated[FilePath | None, Field(validate_default=True)] = None
    hosts: Annotated[tuple[LibvirtHost, ...], Strict(strict=False), AfterValidator(_not_empty)]
    machine_types: Annotated[Mapping[Label, LibvirtMachineType], AfterValidator(_not_empty)]
    images: Mapping[ImageKey, LibvirtImage] = {}
    disk_size_gb: DiskGb = 10
    vendor_data: str = ""
    install_guest_agent: bool = True

    @field_validator("known_hosts_file")
    @classmethod
    def _host_keys_are_known(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is None and not info.data.get("insecure_ignore_host_key"):
            raise ValueError("missing (or say insecureIgnoreHostKey: true)")
        return path

    @field_validator("hosts")
    @classmethod
    def _hosts_are_distinct(cls, hosts: tuple[LibvirtHost, ...]) -> tuple[LibvirtHost, ...]:
        names = [host.name for host in hosts]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the name {repeated[0]!r} is used twice")
        return hosts


class ProxmoxTemplate(Block):
    vmid: Vmid
    node: NodeName | None = None
    """Where the template lives; may be left out with a single node."""


class ProxmoxMachineType(Block):
    cores: Annotated[int, Field(ge=1, le=1024)] = 1
    memory_mb: Annotated[int, Field(ge=128)] = 1024


class ProxmoxBlock(Block):
    url: Annotated[str, AfterValidator(_server_url)]
    token_file: FilePath
    insecure_skip_tls_verify: Annotated[bool, Field(alias="insecureSkipTLSVerify")] = False
    ca_file: Annotated[FilePath | None, Field(validate_default=True)] = None
    nodes: Annotated[tuple[NodeName, ...], Strict(strict=False), AfterValidator(_not_empty)]
    iso_storage: Word
    templates: Annotated[Mapping[Label, ProxmoxTemplate], AfterValidator(_not_empty)]
    machine_types: Annotated[Mapping[Label, ProxmoxMachineType], AfterValidator(_not_empty)]
    storage: Word | None = None
    """Where the clone's disk goes; the template's own storage, when left out."""
    bridge: Word = "vmbr0"
    vlan_tag: Annotated[int, Field(ge=1, le=4094)] | None = None
    vmid_range: Annotated[tuple[Vmid, Vmid], Strict(strict=False), AfterValidator(_ordered)] = (20000, 20999)
    request_timeout_seconds: Annotated[float, Field(gt=0)] = 30
    vendor_data: str = ""
    install_guest_agent: bool = True

    @field_validator("ca_file")
    @classmethod
    def _server_is_verified(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is None and not info.data.get("insecure_skip_tls_verify"):
            raise ValueError("missing (or say insecureSkipTLSVerify: true)")
        return path

    @field_validator("templates")
    @classmethod
    def _templates_are_located(
        cls, templates: Mapping[str, ProxmoxTemplate], info: ValidationInfo
    ) -> Mapping[str, ProxmoxTemplate]:
        homeless = [key for key, template in templates.items() if template.node is None]
        if homeless and len(info.data.get("nodes", ())) > 1:
            raise ValueError(f"{homeless[0]}.node is missing: there is more than one node")
        return templates


class KubernetesBlock(Block):
    image: Word = "ubuntu/squid:6.6-24.04_edge"
    namespace: Label | None = None
    """The namespace that the product itself runs in, when left out; outside a cluster, that of the kubeconfig."""
    kubeconfig_file: FilePath | None = None
    """The account of the pod that the product runs in, when left out; outside a cluster, the standard KUBECONFIG."""
    clients: Annotated[tuple[Cidr, ...], Strict(strict=False), AfterValidator(_not_empty)] = (
        IPv4Network("10.0.0.0/8"),
        IPv4Network("172.16.0.0/12"),
        IPv4Network("192.168.0.0/16"),
        IPv4Network("100.64.0.0/10"),
        IPv6Network("fc00::/7"),
    )
    """Who may use the proxies: probes and crawlers. Where pods have public addresses, they would be open proxies."""
    allow_private_targets: Annotated[tuple[Cidr, ...], Strict(strict=False)] = ()
    """Networks that are not public, and that proxies may fetch from all the same."""


class ProcessBlock(Block):
    command: Annotated[tuple[str, ...], Strict(strict=False), AfterValidator(_command_line)] | None = None
    """A proxy server that stays in the foreground; ``{host}``, ``{port}`` and ``{dir}`` (its own folder) are filled in.
    PyPI's proxy.py, when left out."""
    host: Annotated[str, AfterValidator(_reachable_address)] = "127.0.0.1"
    state_dir: FilePath | None = None
    """A folder of the product's own state, when left out."""


BLOCKS: Mapping[str, type[Block]] = {
    "gcp": GcpBlock,
    "kvm": LibvirtBlock,
    "kvm2": LibvirtBlock,
    "proxmox": ProxmoxBlock,
    "kubernetes": KubernetesBlock,
    "process": ProcessBlock,
}

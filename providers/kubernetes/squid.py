"""The configuration of a Squid that only forwards: nothing cached, nothing logged, nothing private reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network

Network = IPv4Network | IPv6Network

NOT_PUBLIC = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
        *("::/127", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
    )
)
"""Whatever a target resolves to in here, the cluster and its cloud's metadata included, is not fetched."""

MAX_FILE_DESCRIPTORS = 1024
"""About 500 tunnels, which take 100 MB at most; 1,900 busy ones were seen to take more than a pod's limit.

Without a value Squid sizes its tables from RLIMIT_NOFILE, which containers often set to a billion, and is OOM-killed at
its start.
"""


def squid_conf(*, port: int, clients: Iterable[Network], allowed_private_targets: Iterable[Network]) -> str:
    """The file's text, understood by Squid 5 and 6."""
    denied = " ".join(str(network) for network in denied_targets(allowed_private_targets))
    deny = f"acl denied_targets dst {denied}\nhttp_access deny denied_targets\n" if denied else ""
    return f"""\
http_port {port}
acl clients src {" ".join(str(network) for network in clients)}
http_access deny manager
http_access deny !clients
{deny}http_access allow all
via off
forwarded_for delete
cache deny all
cache_mem 8 MB
memory_pools_limit 16 MB
max_filedescriptors {MAX_FILE_DESCRIPTORS}
access_log none
cache_store_log none
cache_log /dev/null
digest_generation off
visible_hostname proxyfleet
pid_filename none
pinger_enable off
shutdown_lifetime 1 second
"""


def denied_targets(allowed: Iterable[Network]) -> list[Network]:
    """NOT_PUBLIC without ``allowed``. Subtracted here, not in the ACL: there, a name that resolves to an allowed and to
    a denied address would pass."""
    denied: list[Network] = list(NOT_PUBLIC)
    for exception in allowed:
        denied = [rest for network in denied for rest in _without(network, exception)]
    return [
        *collapse_addresses(network for network in denied if isinstance(network, IPv4Network)),
        *collapse_addresses(network for network in denied if isinstance(network, IPv6Network)),
    ]


def _without(network: Network, exception: Network) -> Iterator[Network]:
    if not network.overlaps(exception):
        yield network
    elif exception.prefixlen > network.prefixlen:
        yield from network.address_exclude(exception)  # type: ignore[arg-type]  # those that overlap are of one version

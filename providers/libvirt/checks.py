"""Can instances be made on a host? Asked of all hosts at once, and with nothing that another call waits for."""

from __future__ import annotations

from providers.blocks import LibvirtHost
from providers.checks import CheckReason, reason_of
from providers.errors import ProviderError
from providers.instances import TargetCheck
from providers.libvirt.connections import Connections
from providers.libvirt.errors import (
    Code,
    HostKeyMismatch,
    NetworkNotFound,
    PoolNotFound,
    SSHHandshakeFailed,
    Timeout,
    Unreachable,
)
from providers.libvirt.volumes import Pool

CHECK_SECONDS = 15.0

OWN_REASONS = (HostKeyMismatch, NetworkNotFound, PoolNotFound, SSHHandshakeFailed, Timeout, Unreachable)


def check_host(host: LibvirtHost, connections: Connections) -> TargetCheck:
    try:
        with connections.session(host, seconds=CHECK_SECONDS) as session:
            Pool(session)
            if host.network is not None:
                look_up = session.connection.networkLookupByName
                network = session.find(look_up, host.network, missing=Code.NO_NETWORK)
                if network is None or not session.rpc(network.isActive):
                    state = "no" if network is None else "an inactive"
                    raise NetworkNotFound(f"host {host.name} has {state} network {host.network}")
    except ProviderError as error:
        return TargetCheck(name=host.name, ready=False, reason=_reason(error), message=error.detail)
    return TargetCheck(name=host.name, ready=True, reason=CheckReason.HEALTHY)


def _reason(error: ProviderError) -> CheckReason:
    return CheckReason(error.reason) if isinstance(error, OWN_REASONS) else reason_of(error)

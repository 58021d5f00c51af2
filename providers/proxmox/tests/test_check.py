"""The check of a node: one reason for each way in which an entry can be wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from providers.checks import CheckReason
from providers.proxmox.tests.conftest import Open
from providers.proxmox.tests.standin.cluster import ALL_PRIVILEGES, TEMPLATE, TOKEN, Cluster, PveError
from providers.proxmox.tests.standin.server import Fault, PveServer, raising

CASES: dict[str, tuple[CheckReason, str, Callable[[Cluster], Any]]] = {
    "all is well": (CheckReason.HEALTHY, "", lambda cluster: None),
    "offline": (CheckReason.UNREACHABLE, "offline", lambda cluster: cluster.offline.add("pve1")),
    "unknown token": (CheckReason.AUTHENTICATION_FAILED, "", lambda cluster: cluster.tokens.clear()),
    "few privileges": (
        CheckReason.PERMISSION_DENIED,
        "the token lacks VM.Clone, VM.PowerMgmt on /vms",
        lambda cluster: cluster.tokens[TOKEN].update({"/vms": ALL_PRIVILEGES - {"VM.Clone", "VM.PowerMgmt"}}),
    ),
    "seeds can't be deleted": (
        CheckReason.PERMISSION_DENIED,
        "the token lacks Datastore.Allocate on /storage/local",
        lambda cluster: cluster.tokens[TOKEN].update({"/storage/local": ALL_PRIVILEGES - {"Datastore.Allocate"}}),
    ),
    "no ISO storage": (CheckReason.STORAGE_NOT_FOUND, "isoStorage", lambda cluster: cluster.storages.pop("local")),
    "no ISOs on it": (
        CheckReason.STORAGE_NOT_FOUND,
        "not for iso",
        lambda cluster: setattr(cluster.storages["local"], "content", "vztmpl"),
    ),
    "no disk storage": (CheckReason.STORAGE_NOT_FOUND, "storage:", lambda cluster: cluster.storages.pop("local-lvm")),
    "no template": (CheckReason.TEMPLATE_NOT_FOUND, "VM 9000", lambda cluster: cluster.guests.pop(TEMPLATE)),
    "no bridge": (CheckReason.NETWORK_NOT_FOUND, "vmbr0", lambda cluster: cluster.bridges.clear()),
}


@pytest.mark.parametrize("case", CASES)
def test_reasons(case: str, open_provider: Open, cluster: Cluster) -> None:
    reason, message, change = CASES[case]
    change(cluster)
    (target,) = open_provider().check()
    assert (target.name, target.reason, target.ready) == ("pve1", reason, reason is CheckReason.HEALTHY)
    assert message in target.message


def test_a_node_that_the_cluster_does_not_have(open_provider: Open) -> None:
    targets = list(open_provider(nodes=["pve1", "pve7"]).check())
    assert [target.reason for target in targets] == [CheckReason.HEALTHY, CheckReason.MISCONFIGURED]


def test_a_server_that_hangs_or_fails_or_is_not_there(open_provider: Open, server: PveServer, tmp_path: Path) -> None:
    server.faults.append(Fault("GET /nodes", before=lambda: time.sleep(1)))
    server.faults.append(Fault("GET /nodes", before=raising(PveError(500, "unable to parse something"))))
    providers = [
        open_provider(requestTimeoutSeconds=0.2),
        open_provider(),
        open_provider(url="https://127.0.0.1:1"),
    ]
    reasons = [target.reason for provider in providers for target in provider.check()]
    assert reasons == [CheckReason.TIMEOUT, CheckReason.API_ERROR, CheckReason.UNREACHABLE]
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    (target,) = open_provider(caFile=tmp_path / "other.pem").check()
    assert target.reason is CheckReason.MISCONFIGURED

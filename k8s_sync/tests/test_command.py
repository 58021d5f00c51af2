from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from k8s_sync.checks import answering
from k8s_sync.management.commands import k8s_sync as command
from proxyfleet.conf import settings
from proxyfleet.local.addresses import Address, free_port


def test_no_bridge_runs_where_no_cluster_is_configured() -> None:
    with pytest.raises(CommandError, match="PROXYFLEET_CLUSTER_SYNC=true"):
        call_command("k8s_sync")


def test_a_taken_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address("127.0.0.1", free_port())
    conf = settings().model_copy(update={"cluster_sync": True, "sync_addr": str(address)})
    monkeypatch.setattr(command, "settings", lambda: conf)
    monkeypatch.setattr(command, "_bridge", lambda _conf: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with (
        answering(address, alive=lambda: True, problems=dict),
        pytest.raises(CommandError, match=f"PROXYFLEET_SYNC_ADDR: can't listen on {address}"),
    ):
        call_command("k8s_sync")

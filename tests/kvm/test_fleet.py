"""What becomes of a Proxy when its host, credentials, pool or image fail, and that another proxy does not notice."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from proxyfleet.fleet import operations
from proxyfleet.fleet.models import Proxy
from tests.kvm.entries import block, host_entry, impatience
from tests.kvm.fleet import Fleet, providers_of
from tests.kvm.host import Host
from tests.kvm.sources import ImageServer

pytestmark = [pytest.mark.timeout(600), pytest.mark.django_db(transaction=True)]

WAITING = "Provisioning"


@pytest.fixture
def faults(host: Host, images: ImageServer, tmp_path: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Settings of an entry's block, by what is wrong with them."""
    (tmp_path / "no-key").write_text("not a key")
    (tmp_path / "no-hosts").write_text("")
    silent = str(host.root / "silent-sock")

    def image(fault: str, **settings: str) -> dict[str, Any]:
        return {"images": {"tiny": {"url": images.url(f"{fault}/tiny")} | settings}}

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(silent)
        listener.listen(64)
        yield {
            "frozen": {"hosts": [host_entry(socket=silent)]},
            "unreachable": {"hosts": [host_entry(port=9)], "insecureIgnoreHostKey": True},
            "unknown host key": {"knownHostsFile": str(tmp_path / "no-hosts")},
            "missing key": {"sshKeyFile": str(tmp_path / "later")},
            "unparseable key": {"sshKeyFile": str(tmp_path / "no-key")},
            "missing pool": {"hosts": [host_entry(pool="nowhere")]},
            "full pool": {"diskSizeGb": 65536},
            "stalling source": image("stalling"),
            "breaking source": image("breaking"),
            "source without the image": image("missing"),
            "source with another image": image("shorter", sha256=images.sha256("tiny")),
        }
    Path(silent).unlink()


def declare(name: str, entry: str, *, image: str = "tiny") -> Proxy:
    spec = {"provider": entry, "placement": {"machineType": "tiny", "image": image}}
    return operations.declare("default", name, spec, actor="test", now=timezone.now())


@pytest.mark.parametrize(
    ("fault", "phase", "reason"),
    [
        ("frozen", WAITING, "Creating"),
        ("unreachable", WAITING, "Creating"),
        ("unknown host key", WAITING, "HostKeyMismatch"),
        ("missing key", WAITING, "Creating"),
        ("unparseable key", "Failed", "InvalidRequest"),
        ("missing pool", WAITING, "PoolNotFound"),
        ("full pool", WAITING, "QuotaExceeded"),
        ("stalling source", WAITING, "Creating"),
        ("breaking source", WAITING, "Creating"),
        ("source without the image", WAITING, "Misconfigured"),
        ("source with another image", WAITING, "Misconfigured"),
    ],
)
def test_a_fault_has_its_outcome_on_the_proxy_and_none_on_another(
    host: Host, images: ImageServer, faults: dict[str, dict[str, Any]], fault: str, phase: str, reason: str
) -> None:
    """A passing fault keeps the reason that was: it is told once it lasts."""
    good = block(host, images)
    bad = type(good).model_validate(good.model_dump(by_alias=True, mode="json") | faults[fault])
    fleet = Fleet(providers_of(good=("kvm", good), bad=("kvm2", bad)))
    proxy, other = declare("unlucky", "bad"), declare("lucky", "good")
    with impatience(5) if fault in {"frozen", "stalling source"} else nullcontext():
        proxy = fleet.step(proxy)
    other = fleet.step(other)
    assert (proxy.phase, proxy.reason, proxy.provider_id) == (phase, reason, "")
    assert (proxy.retry_at is None) == (phase == "Failed"), "only what can't work is not tried again"
    assert other.provider_id
    assert (other.phase, other.call_errors) == ("Provisioning", 0)


def test_a_proxy_that_waits_for_room_is_made_once_there_is(host: Host, images: ImageServer) -> None:
    folder = host.pools / "small"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
    host.add_pool("small")
    try:
        fleet = Fleet(providers_of(home=("kvm2", block(host, images, host_entry(pool="small")))))
        proxy = fleet.step(declare("waits", "home"))
        assert (proxy.phase, proxy.reason, proxy.provider_id) == (WAITING, "QuotaExceeded", "")
        subprocess.run(["mount", "-o", "remount,size=4g", folder], check=True)
        operations.reconcile_now(proxy.pk, now=timezone.now())
        proxy = fleet.step(proxy)
        assert proxy.provider_id
        operations.request_deletion(proxy.pk, actor="test", now=timezone.now())
        fleet.until_gone(proxy)
    finally:
        host.clear()
        host.virsh("pool-destroy", "small")
        host.virsh("pool-undefine", "small")
        subprocess.run(["umount", folder], check=True)


def test_a_proxy_of_a_host_that_was_taken_out_fails_and_can_be_deleted(host: Host, images: ImageServer) -> None:
    proxy = Fleet(providers_of(home=("kvm", block(host, images)))).step(declare("left", "home"))
    made = proxy.provider_id
    without = Fleet(providers_of(home=("kvm", block(host, images, host_entry("another")))))
    proxy = without.step(proxy)
    assert (proxy.phase, proxy.reason) == ("Failed", "InvalidRequest")
    assert "host1" in proxy.message
    operations.request_deletion(proxy.pk, actor="test", now=timezone.now())
    without.until_gone(proxy)
    assert made.rpartition("/")[2] in host.virsh("list", "--all", "--uuid"), "nobody may touch that host any more"

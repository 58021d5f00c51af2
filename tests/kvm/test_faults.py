"""What a driver says when the host, the road to it, its credentials, its pool or an image's source fail."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from providers.errors import (
    Conflict,
    InvalidRequest,
    Misconfigured,
    ProviderError,
    QuotaExceeded,
    Unavailable,
)
from providers.instances import InstanceState
from providers.libvirt.driver import LibvirtProvider
from providers.libvirt.errors import HostKeyMismatch, KeyUnusable, Timeout, Unreachable
from tests.kvm.entries import DRIVERS, block, host_entry, impatience, provider, tiny_request
from tests.kvm.host import OPERATOR, Host, wait_until
from tests.kvm.sources import ImageServer

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(params=sorted(DRIVERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(kind: str, host: Host, images: ImageServer) -> LibvirtProvider:
    return provider(kind, block(host, images))


@pytest.fixture
def silent_socket(host: Host) -> Iterator[str]:
    """Of a libvirt that accepts connections and never says a word: a second host, frozen for good."""
    path = str(host.root / "silent-sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        yield path
    Path(path).unlink()


def test_a_killed_sshd_is_unavailable_at_once_and_the_next_call_connects_anew(
    home: LibvirtProvider, host: Host
) -> None:
    made = home.create(tiny_request())
    wait_until(lambda: not busy_threads(), "the create to be over")
    with host.frozen(), ThreadPoolExecutor(1) as worker:
        call = worker.submit(home.get, made.provider_id)
        wait_until(lambda: "libvirt-deadline" in busy_threads(), "the call to be under way")
        host.kill_sshd()
        with pytest.raises(Unreachable):
            call.result()
    with pytest.raises(Unreachable):
        home.get(made.provider_id)
    host.start_sshd()
    assert home.get(made.provider_id).provider_id == made.provider_id


def frozen(host: Host) -> AbstractContextManager[None]:
    return host.frozen()


def packets_dropped(host: Host) -> AbstractContextManager[None]:
    return host.packets_dropped()


@pytest.mark.parametrize("fault", [frozen, packets_dropped])
def test_a_host_that_does_not_answer_is_given_up_in_time(
    home: LibvirtProvider, host: Host, fault: Callable[[Host], AbstractContextManager[None]]
) -> None:
    made = home.create(tiny_request())
    with fault(host), impatience(5):
        for call in (lambda: home.get(made.provider_id), lambda: home.delete(made.provider_id)):
            started = time.monotonic()
            with pytest.raises(Unavailable):
                call()
            assert time.monotonic() - started < 30
        listed = home.list()
        assert (listed.instances, listed.unreachable) == ((), ("host1",))
    assert home.get(made.provider_id).provider_id == made.provider_id


def test_a_frozen_host_delays_no_other(kind: str, host: Host, images: ImageServer, silent_socket: str) -> None:
    mixed = provider(kind, block(host, images, host_entry(), host_entry("frozen", socket=silent_socket)))
    made = mixed.create(tiny_request(zone="host1"))
    with ThreadPoolExecutor(3) as pool, impatience(15):
        stuck = [pool.submit(mixed.create, tiny_request(zone="frozen")) for _ in range(3)]
        assert mixed.get(made.provider_id).provider_id == made.provider_id
        mixed.delete(made.provider_id)
        assert not any(call.done() for call in stuck), "three calls still wait for the frozen host"
        for call in stuck:
            with pytest.raises(Timeout):
                call.result()
    with impatience(5):
        assert mixed.list().unreachable == ("frozen",)
        checks = {check.name: check.reason for check in mixed.check()}
    assert checks == {"host1": "Healthy", "frozen": "Timeout"}


def test_another_host_key_is_refused_and_named_by_the_check(home: LibvirtProvider, host: Host) -> None:
    with host.another_host_key():
        with pytest.raises(HostKeyMismatch):
            home.create(tiny_request())
        (check,) = home.check()
        assert (check.ready, check.reason) == (False, "HostKeyMismatch")
    home.create(tiny_request())


def test_a_key_that_appears_later_just_works(kind: str, host: Host, images: ImageServer, tmp_path: Path) -> None:
    key = tmp_path / "id"
    entry = provider(kind, block(host, images, sshKeyFile=str(key)))
    request = tiny_request()
    with pytest.raises(Unavailable) as missing:
        entry.create(request)
    assert str(key) in missing.value.detail

    key.write_text("not a key")
    with pytest.raises(InvalidRequest, match="SSH key"):
        entry.create(request)
    with pytest.raises(KeyUnusable):
        entry.get("home://host1/00000000-0000-0000-0000-000000000001")
    (check,) = entry.check()
    assert check.reason == "Misconfigured"

    key.write_text(host.key.read_text())
    entry.create(request)


def test_an_sshd_that_forwards_no_sockets_is_used_through_the_helper(home: LibvirtProvider, host: Host) -> None:
    with host.without_forwarding():
        made = home.create(tiny_request())
        home.delete(made.provider_id)


def test_a_user_of_the_group_libvirt_may_do_all_of_it(kind: str, host: Host, images: ImageServer) -> None:
    entry = provider(kind, block(host, images, host_entry(user=OPERATOR)))
    (check,) = entry.check()
    assert check.ready, check.message
    made = entry.create(tiny_request())
    assert entry.get(made.provider_id).identity == made.identity
    entry.delete(made.provider_id)
    assert host.volumes() == host.complete_bases()


def test_a_socket_that_is_not_there_is_named(kind: str, host: Host, images: ImageServer) -> None:
    with host.without_helper():
        entry = provider(kind, block(host, images, host_entry(socket="/run/libvirt/nobody")))
        with pytest.raises(Unreachable) as refused:
            entry.create(tiny_request())
        assert "/run/libvirt/nobody" in refused.value.detail


@pytest.mark.parametrize(
    ("setting", "reason"), [({"pool": "nowhere"}, "PoolNotFound"), ({"network": "nowhere"}, "NetworkNotFound")]
)
def test_what_a_host_lacks_is_named(
    kind: str, host: Host, images: ImageServer, setting: dict[str, str], reason: str
) -> None:
    (check,) = provider(kind, block(host, images, host_entry(**setting))).check()
    assert (check.ready, check.reason) == (False, reason)


@pytest.fixture
def small_pool(host: Host) -> Iterator[str]:
    """A pool of 8 MiB, which holds no image."""
    folder = host.pools / "small"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
    host.add_pool("small")
    yield "small"
    host.virsh("pool-destroy", "small")
    host.virsh("pool-undefine", "small")
    subprocess.run(["umount", folder], check=True)


def test_a_full_pool_is_quota_and_leaves_nothing(kind: str, host: Host, images: ImageServer, small_pool: str) -> None:
    entry = provider(kind, block(host, images, host_entry(pool=small_pool)))
    asked = len(images.requests)
    with pytest.raises(QuotaExceeded) as full:
        entry.create(tiny_request())
    assert "host1" in str(full.value)
    assert host.volumes(small_pool) == set()
    if kind == "kvm2":
        assert len(images.requests) == asked, "seen before anything was fetched"


@pytest.mark.parametrize(
    ("fault", "expected", "says"),
    [
        ("stalling", Unavailable, "stalls"),
        ("breaking", Unavailable, "broke off"),
        ("longer", Unavailable, "broke off"),
        ("failing", Unavailable, "fails"),
        ("shorter", Misconfigured, "another image"),
        ("missing", Misconfigured, "404"),
        ("page", Misconfigured, "another image"),
    ],
)
def test_a_bad_source_has_its_own_outcome_and_leaves_nothing(
    kind: str, host: Host, images: ImageServer, fault: str, expected: type[ProviderError], says: str
) -> None:
    bad = {"url": images.url(f"{fault}/tiny"), "firmware": "bios", "sha256": images.sha256("tiny")}
    entry = provider(kind, block(host, images, images={"bad": bad, "tiny": {"url": images.url("tiny")}}))
    before = host.volumes()
    bystander = entry.create(tiny_request())
    silence = impatience(5) if fault == "stalling" else nullcontext()
    with silence, pytest.raises(expected, match=says) as refused:
        entry.create(tiny_request(image="bad"))
    assert type(refused.value) is expected
    entry.delete(bystander.provider_id)
    assert host.volumes() - before <= host.complete_bases()


def test_a_page_in_the_place_of_an_image_is_no_image(kind: str, host: Host, images: ImageServer) -> None:
    with pytest.raises(Misconfigured, match="no qcow2"):
        provider(kind, block(host, images)).create(tiny_request(image=images.url("page/tiny")))


def test_two_workers_fetch_an_image_once(kind: str, host: Host, images: ImageServer) -> None:
    slow = {"slow": {"url": images.url("slow/tiny"), "firmware": "bios"}}
    first, second = (provider(kind, block(host, images, images=slow)) for _ in range(2))
    request, other = tiny_request(image="slow"), tiny_request(image="slow")
    asked = images.requests.count("/slow/tiny")
    images.half_sent.clear()
    images.let_go.clear()
    with ThreadPoolExecutor(1) as pool:
        fetching = pool.submit(first.create, request)
        assert images.half_sent.wait(30)
        with pytest.raises(Unavailable, match="another worker") as waiting:
            second.create(other)
        assert waiting.value.retry_after
        images.let_go.set()
        fetching.result(60)
    second.create(other)
    assert images.requests.count("/slow/tiny") == asked + 1


def test_a_fetch_whose_worker_was_killed_is_taken_over(
    kind: str, host: Host, images: ImageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"url": images.url("slow/tiny"), "firmware": "bios", "sha256": images.sha256("tiny")}
    # A key of its own: kvm2 would take the base that another test left under the same.
    configuration = block(host, images, images={"taken-over": source})
    images.half_sent.clear()
    images.let_go.clear()
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.kvm.worker", kind, configuration.model_dump_json(by_alias=True)]
    )
    assert images.half_sent.wait(120)
    worker.send_signal(signal.SIGKILL)
    worker.wait(10)
    images.let_go.set()

    monkeypatch.setattr("providers.libvirt.images.ABANDONED_SECONDS", 1.0)
    entry = provider(kind, configuration)
    request = tiny_request(image="taken-over")
    refused = 0
    deadline = time.monotonic() + 60
    while True:
        try:
            made = entry.create(request)
            break
        except Unavailable:
            refused += 1
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert refused, "no guest is made from a half-written base"
    assert made.state in {InstanceState.PROVISIONING, InstanceState.RUNNING}


def test_kvm2_refuses_another_image_under_the_same_key_and_kvm_takes_it_as_another(
    kind: str, host: Host, images: ImageServer
) -> None:
    entry = provider(kind, block(host, images))
    entry.create(tiny_request())
    before = host.volumes()
    changed = provider(
        kind, block(host, images, images={"tiny": {"url": images.url("tiny"), "sha256": "0" * 64, "firmware": "bios"}})
    )
    with pytest.raises(Misconfigured, match="another image"):
        changed.create(tiny_request())
    assert host.volumes() == before, "and never 'fixed' by deleting"


def test_a_host_that_left_the_providers_file(home: LibvirtProvider, kind: str, host: Host, images: ImageServer) -> None:
    made = home.create(tiny_request())
    without = provider(kind, block(host, images, host_entry("another")))
    with pytest.raises(InvalidRequest, match="host1"):
        without.get(made.provider_id)
    without.delete(made.provider_id)
    assert home.get(made.provider_id).provider_id == made.provider_id


def test_a_guest_without_an_address_goes_on_provisioning(kind: str, host: Host, images: ImageServer) -> None:
    """On a bridge there are no leases to look at, and the tiny guest has no agent."""
    entry = provider(kind, block(host, images, host_entry(network=None, bridge="virbr-egress")))
    made = entry.create(tiny_request())
    looked_at = entry.get(made.provider_id)
    assert (looked_at.state, looked_at.address) == (InstanceState.PROVISIONING, None)
    assert "no address yet" in looked_at.message


def test_an_address_that_can_no_longer_be_read_is_not_taken_for_missing(
    kind: str, host: Host, images: ImageServer
) -> None:
    entry = provider(kind, block(host, images, host_entry(network=None, bridge="virbr-egress")))
    made = entry.create(tiny_request())
    uuid = made.provider_id.rpartition("/")[2]
    spoken = "<address>192.168.231.77</address>"
    host.virsh("metadata", uuid, "urn:proxyfleet:address:1", "--key", "a", "--set", spoken, "--live", "--config")
    with pytest.raises(Unavailable, match="address"):
        entry.get(made.provider_id)
    (listed,) = entry.list()
    assert (listed.state, listed.address) == (InstanceState.RUNNING, "192.168.231.77")


def test_a_domain_of_someone_else_with_our_name_is_left_alone(home: LibvirtProvider, host: Host) -> None:
    request = tiny_request()
    host.define(
        f"<domain type='qemu'><name>{request.name}</name><memory>65536</memory><os><type>hvm</type></os></domain>"
    )
    with pytest.raises(Conflict):
        home.create(request)
    assert request.name in host.virsh("list", "--all", "--name")
    assert home.list().instances == ()


def test_kvm_and_kvm2_share_a_pool_and_nothing_in_it(host: Host, images: ImageServer) -> None:
    configuration = block(host, images)
    old, new = provider("kvm", configuration, entry="old"), provider("kvm2", configuration, entry="new")
    theirs, ours = old.create(tiny_request()), new.create(tiny_request())
    bases = {name for name in host.volumes() if name.endswith(".complete")}
    assert {name for name in bases if "new" in name} == {"base-new-tiny.qcow2.complete"}
    assert [found.provider_id for found in old.list()] == [theirs.provider_id]
    assert [found.provider_id for found in new.list()] == [ours.provider_id]
    with pytest.raises(InvalidRequest):
        new.delete(theirs.provider_id)
    uuid = theirs.provider_id.rpartition("/")[2]
    new.delete(f"new://host1/{uuid}")
    assert old.get(theirs.provider_id).identity == theirs.identity
    new.delete(ours.provider_id)
    old.delete(theirs.provider_id)
    assert {name for name in host.volumes() if name.endswith(".complete")} >= bases


def test_nothing_is_left_after_a_hundred_faults(
    kind: str, host: Host, images: ImageServer, silent_socket: str, tmp_path: Path
) -> None:
    """No thread, no descriptor, no temporary file."""
    bad = {fault: {"url": images.url(f"{fault}/tiny")} for fault in ("breaking", "longer", "missing", "page")}
    configuration = block(host, images, images=bad)
    wrong_keys = tmp_path / "known_hosts"
    wrong_keys.write_text("")
    silent = provider(kind, block(host, images, host_entry(socket=silent_socket), images=bad))
    entries = [
        silent,
        provider(kind, block(host, images, host_entry(socket="/run/nobody"), images=bad)),
        provider(kind, block(host, images, host_entry(port=9), images=bad)),
        provider(kind, block(host, images, host_entry(user="nobody"), images=bad)),
        provider(kind, block(host, images, host_entry(pool="nowhere"), images=bad)),
        provider(kind, block(host, images, knownHostsFile=str(wrong_keys), images=bad)),
    ]
    home = provider(kind, configuration)

    def fail(number: int) -> None:
        which = number % 10
        entry, image = (entries[which], "breaking") if which < len(entries) else (home, list(bad)[which - len(entries)])
        silence = impatience(0.3) if entry is silent else nullcontext()
        with silence, pytest.raises(ProviderError):
            entry.create(tiny_request(image=image))

    for number in range(10):
        fail(number)
    wait_until(lambda: not busy_threads(), "the first round to end")
    before = resources()
    for number in range(100):
        fail(number)
    wait_until(
        lambda: all(now <= then for now, then in zip(resources(), before, strict=True)),
        f"nothing to be left: {before} before",
    )
    print(f"threads, descriptors, folders: {before} before 100 faults, {resources()} after")  # noqa: T201 - seen with -s


def busy_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("libvirt") or "process_request" in name]


def resources() -> tuple[int, int, int]:
    folders = list(Path(tempfile.gettempdir()).glob("proxyfleet-libvirt-*"))
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir())), len(folders)

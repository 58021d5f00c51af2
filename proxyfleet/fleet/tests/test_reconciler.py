"""The life of a proxy, told by its row, its history and what exists at the backend."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from providers.errors import AuthenticationFailed, Conflict, InvalidRequest, QuotaExceeded, Unavailable
from providers.tests.backend import Call, Crash, Fault, Life, lose_response, raising, refuse
from proxyfleet.fleet import claims, operations
from proxyfleet.fleet.models import Origin, Proxy, ProxyEvent
from proxyfleet.fleet.phases import Verdict
from proxyfleet.fleet.reconciler import reconcile
from proxyfleet.fleet.tests.world import HOLD, World


def test_a_declared_proxy_becomes_ready(world: World) -> None:
    world.backend.lives.append(Life(provisioning_gets=2, addressless_gets=1))
    proxy = world.ready(world.declare())
    assert proxy.address == world.live(proxy.uid)[0].address
    assert proxy.observed_generation == proxy.generation
    assert world.prober.asked == [proxy.pk], "a proxy that became reachable is probed at once"
    assert world.history(proxy) == ["Declared", "Provisioning", "InstanceCreated", "Ready"]
    assert [(c["type"], c["status"]) for c in proxy.conditions] == [
        ("Provisioned", "True"),
        ("Healthy", "True"),
        ("Ready", "True"),
    ]


def test_health_alone_moves_between_ready_and_unhealthy(world: World) -> None:
    proxy = world.ready(world.declare())
    world.judge(proxy, Verdict.UNHEALTHY, "TunnelRefused")
    proxy = world.step(proxy)
    assert (proxy.phase, proxy.reason) == ("Unhealthy", "TunnelRefused")
    world.judge(proxy, Verdict.HEALTHY)
    assert world.step(proxy).phase == "Ready"


@pytest.mark.parametrize("rounds", [0, 60], ids=["just now", "for minutes"])
def test_an_unhealthy_proxy_is_demoted_while_its_provider_is_down(world: World, rounds: int) -> None:
    proxy = world.ready(world.declare())
    world.backend.unreachable_zones.add("memory")
    operations.reconcile_now(proxy.pk, now=world.now)
    world.settle(proxy, rounds=rounds)
    Proxy.objects.filter(pk=proxy.pk).update(retry_at=None)
    world.judge(proxy, Verdict.UNHEALTHY, "ConnectFailed")
    proxy = world.step(proxy)
    assert (proxy.phase, proxy.reason) == ("Unhealthy", "ConnectFailed")


def test_at_rest_nothing_is_written(world: World) -> None:
    proxy = world.ready(world.declare())
    before = Proxy.objects.values().get(pk=proxy.pk)
    events = ProxyEvent.objects.count()
    for _ in range(20):
        world.now += timedelta(seconds=30)
        world.relist()
        assert world.run() == 0
    assert Proxy.objects.values().get(pk=proxy.pk) == before
    assert ProxyEvent.objects.count() == events


def test_a_lost_instance_is_recreated(world: World) -> None:
    proxy = world.ready(world.declare())
    first = proxy.provider_id
    world.backend.vanish(first)
    world.relist()
    proxy = world.ready(proxy)
    assert proxy.provider_id != first
    history = world.history(proxy)
    assert history[history.index("InstanceLost") :] == ["InstanceLost", "Provisioning", "InstanceCreated", "Ready"]


def test_a_verdict_on_the_old_instance_says_nothing_of_the_new_one(world: World) -> None:
    proxy = world.ready(world.declare())
    world.backend.vanish(proxy.provider_id)
    world.relist()
    proxy = world.settle(proxy, rounds=3)
    assert proxy.verdict == Verdict.HEALTHY
    assert (proxy.phase, proxy.reason) == ("Provisioning", "AwaitingFirstProbe")


@pytest.mark.parametrize("fate", ["stop", "fail"])
def test_a_stopped_or_failed_instance_is_replaced(world: World, fate: str) -> None:
    proxy = world.ready(world.declare())
    first = proxy.provider_id
    if fate == "stop":
        world.backend.stop(first)
    else:
        world.backend.fail(first, "the host broke")
    world.relist()
    proxy = world.ready(proxy)
    assert proxy.provider_id != first
    assert [m.provider_id for m in world.live(proxy.uid)] == [proxy.provider_id]
    assert proxy.instance_failures == 0


@pytest.mark.parametrize(
    "edit",
    [
        {"port": 8080},
        {"placement": {"zone": "elsewhere"}},
        {"cloudInit": {"inline": "#!/bin/sh"}},
        {"provider": "other"},
    ],
    ids=lambda edit: next(iter(edit)),
)
def test_a_change_of_what_the_instance_is_made_from_replaces_it(world: World, edit: dict[str, object]) -> None:
    world.providers.configure(["mem", "other"])
    proxy = world.ready(world.declare())
    first = world.live(proxy.uid)[0]
    operations.update(proxy.pk, {"provider": "mem"} | edit, actor="test", now=world.now)
    proxy = world.ready(proxy)
    [second] = world.live(proxy.uid)
    assert second.provider_id != first.provider_id
    assert proxy.address != first.address
    history = world.history(proxy)
    assert history[history.index("SpecChanged") :] == [
        "SpecChanged",
        "Replacing",
        "InstanceDeleted",
        "Provisioning",
        "InstanceCreated",
        "Ready",
    ]


def test_attributes_limits_and_probes_change_in_place(world: World) -> None:
    proxy = world.ready(world.declare())
    spec = {
        "provider": "mem",
        "attributes": {"geo": "eu"},
        "maxLeases": 3,
        "drainSeconds": 5,
        "healthCheck": {"intervalSeconds": 5, "timeoutSeconds": 5},
    }
    operations.update(proxy.pk, spec, actor="test", now=world.now)
    after = world.settle(proxy, rounds=2)
    assert after.provider_id == proxy.provider_id
    assert after.phase == "Ready"
    assert after.observed_generation == after.generation == 2


def test_deletion_leaves_nothing(world: World) -> None:
    world.backend.lives.append(Life(deleting_gets=3))
    proxy = world.ready(world.declare())
    operations.request_deletion(proxy.pk, actor="test", now=world.now)
    assert not world.read(proxy).is_leasable
    for _ in range(10):
        world.run()
        world.now += timedelta(seconds=5)
    assert not Proxy.objects.filter(pk=proxy.pk).exists()
    assert world.backend.machines() == ()
    kinds = list(ProxyEvent.objects.filter(proxy_uid=proxy.uid).order_by("id").values_list("kind", flat=True))
    assert kinds[-4:] == ["DeletionRequested", "PhaseChanged", "InstanceDeleted", "Released"]


def test_a_proxy_on_its_way_out_does_not_block_its_name(world: World) -> None:
    proxy = world.ready(world.declare("crawler"))
    operations.request_deletion(proxy.pk, actor="test", now=world.now)
    again = world.declare("crawler")
    assert again.uid != proxy.uid
    assert world.ready(again).phase == "Ready"


def test_deletion_finishes_where_get_fails_for_good(world: World) -> None:
    proxy = world.ready(world.declare())
    operations.request_deletion(proxy.pk, actor="test", now=world.now)
    world.backend.faults[Call.GET].append(refuse(InvalidRequest("the host is not configured any more")))
    for _ in range(3):
        world.run()
    assert not Proxy.objects.filter(pk=proxy.pk).exists()
    assert world.live() == []


def test_deletion_waits_for_a_provider_that_is_down_and_says_why(world: World) -> None:
    proxy = world.ready(world.declare())
    world.backend.unreachable_zones.add("memory")
    operations.request_deletion(proxy.pk, actor="test", now=world.now)
    proxy = world.settle(proxy, rounds=60)
    assert (proxy.phase, proxy.reason) == ("Terminating", "Unavailable")
    assert "memory" in proxy.message
    world.backend.unreachable_zones.clear()
    for _ in range(200):
        world.run()
        world.now += timedelta(seconds=5)
    assert not Proxy.objects.filter(pk=proxy.pk).exists()


def test_skip_cleanup_releases_a_proxy_whose_provider_entry_is_gone(world: World) -> None:
    proxy = world.ready(world.declare())
    world.providers.configure([])
    operations.request_deletion(proxy.pk, actor="test", now=world.now)
    proxy = world.settle(proxy, rounds=2)
    assert (proxy.phase, proxy.reason) == ("Terminating", "ProviderNotConfigured")
    assert "'mem'" in proxy.message
    operations.skip_cleanup(proxy.pk, actor="test", now=world.now)
    world.run()
    assert not Proxy.objects.filter(pk=proxy.pk).exists()
    abandoned = ProxyEvent.objects.get(proxy_uid=proxy.uid, kind="InstanceAbandoned")
    assert proxy.provider_id in abandoned.message
    assert "orphan GC removes it" in abandoned.message
    world.providers.configure(["mem"])
    world.now += timedelta(hours=1)
    world.collect_orphans()
    assert world.live() == []


def test_an_unknown_provider_entry_destroys_nothing_and_recovers(world: World) -> None:
    proxy = world.ready(world.declare())
    world.providers.configure([])
    operations.reconcile_now(proxy.pk, now=world.now)
    proxy = world.settle(proxy, rounds=2)
    assert (proxy.phase, proxy.reason) == ("Ready", "ProviderNotConfigured")
    assert len(world.live(proxy.uid)) == 1
    world.providers.configure(["mem"])
    proxy = world.settle(proxy, rounds=20)
    assert (proxy.phase, proxy.reason) == ("Ready", "ProbeSucceeded")


def test_unresolved_cloud_init_leaves_a_running_instance_alone_and_its_health_counts(world: World) -> None:
    proxy = world.ready(world.declare())
    Proxy.objects.filter(pk=proxy.pk).update(cloud_init_secret_name="squid", cloud_init_secret_key="user-data")
    proxy = world.step(proxy)
    assert (proxy.phase, proxy.reason) == ("Ready", "CloudInitError")
    assert "default/squid" in proxy.message
    world.judge(proxy, Verdict.UNHEALTHY)
    assert world.step(proxy).phase == "Unhealthy"
    assert len(world.live(proxy.uid)) == 1


def test_without_cloud_init_nothing_is_made(world: World) -> None:
    proxy = world.declare(cloudInit={"secretRef": {"name": "squid"}})
    proxy = world.settle(proxy, rounds=2)
    assert (proxy.phase, proxy.reason) == ("Pending", "CloudInitError")
    assert world.backend.machines() == ()


@pytest.mark.parametrize("error", [InvalidRequest("placement.zone is required"), Conflict("the name is taken")])
def test_a_permanent_error_latches_until_the_spec_changes(world: World, error: InvalidRequest) -> None:
    world.backend.faults[Call.CREATE].append(refuse(error))
    proxy = world.settle(world.declare(), rounds=10)
    assert (proxy.phase, proxy.reason, proxy.message) == ("Failed", error.reason, str(error))
    assert world.backend.machines() == ()
    operations.update(proxy.pk, {"provider": "mem", "placement": {"zone": "z"}}, actor="test", now=world.now)
    assert world.ready(proxy).phase == "Ready"


def test_what_failed_for_good_is_not_latched_by_a_passing_error_after_the_spec_changed(world: World) -> None:
    proxy = world.ready(world.declare())
    world.backend.faults[Call.GET].append(refuse(InvalidRequest("the host is not configured")))
    operations.reconcile_now(proxy.pk, now=world.now)
    assert world.settle(proxy, rounds=2).phase == "Failed"
    world.backend.unreachable_zones.add("memory")
    operations.update(proxy.pk, {"provider": "mem", "drainSeconds": 9}, actor="test", now=world.now)
    world.settle(proxy, rounds=40)
    world.backend.unreachable_zones.clear()
    assert world.settle(proxy, rounds=100).phase == "Ready"


@pytest.mark.parametrize("error", [QuotaExceeded("no capacity in zone z"), AuthenticationFailed("the key was refused")])
def test_what_someone_else_must_mend_waits_and_says_so(world: World, error: QuotaExceeded) -> None:
    world.backend.faults[Call.CREATE].extend([refuse(error)] * 3)
    proxy = world.settle(world.declare(), rounds=2)
    assert (proxy.phase, proxy.reason, proxy.message) == ("Provisioning", error.reason, str(error))
    assert proxy.retry_at is not None
    assert proxy.retry_at - world.now > timedelta(seconds=30)
    assert world.ready(world.settle(proxy, rounds=100)).phase == "Ready"
    assert [e.reason for e in proxy.events.filter(kind="ProviderError")] == [error.reason], "said once, not at each try"


def test_transient_errors_change_nothing_until_they_last(world: World) -> None:
    proxy = world.ready(world.declare())
    world.backend.unreachable_zones.add("memory")
    operations.reconcile_now(proxy.pk, now=world.now)
    world.run()
    after = world.read(proxy)
    assert (after.phase, after.reason, after.conditions) == (proxy.phase, proxy.reason, proxy.conditions)
    proxy = world.settle(proxy, rounds=30)
    assert proxy.phase == "Ready", "a healthy proxy is not demoted because its provider is down"
    assert (proxy.conditions[0]["status"], proxy.conditions[0]["reason"]) == ("Unknown", "Unavailable")
    world.backend.unreachable_zones.clear()
    proxy = world.settle(proxy, rounds=80)
    assert proxy.conditions[0]["status"] == "True"
    assert proxy.error_since is None


@pytest.mark.parametrize(
    ("ask", "shown"),
    [
        (operations.replace, ("Replacing", "InstanceObsolete")),
        (operations.request_deletion, ("Terminating", "DeletingInstance")),
    ],
)
def test_until_an_error_lasts_a_phase_says_why_it_is(
    world: World, ask: Callable[..., Proxy], shown: tuple[str, str]
) -> None:
    proxy = world.ready(world.declare())
    world.backend.unreachable_zones.add("memory")
    ask(proxy.pk, actor="test", now=world.now)
    world.run()
    after = world.read(proxy)
    assert (after.phase, after.reason) == shown


def test_the_backend_may_ask_for_more_patience(world: World) -> None:
    world.backend.faults[Call.CREATE].append(refuse(Unavailable("slow down", retry_after=90)))
    proxy = world.declare()
    world.run()
    retry_at = world.read(proxy).retry_at
    assert retry_at is not None
    assert retry_at >= world.now + timedelta(seconds=90)


def test_an_instance_that_never_gets_an_address_is_made_again(world: World) -> None:
    world.backend.lives.append(Life(provisioning_gets=10**6))
    proxy = world.settle(world.declare(), rounds=1)
    first = proxy.provider_id
    world.now += timedelta(minutes=16)
    proxy = world.ready(world.settle(proxy, rounds=5))
    assert proxy.provider_id != first
    assert len(world.live(proxy.uid)) == 1


def test_a_crash_loop_is_slowed_down(world: World) -> None:
    world.backend.lives.extend([Life(fails="out of memory")] * 50)
    proxy = world.declare()
    for _ in range(60):
        world.run()
        world.now += timedelta(seconds=1)
    made = ProxyEvent.objects.filter(proxy_uid=proxy.uid, kind="InstanceCreated").count()
    assert 3 <= made <= 7, f"{made} instances in a minute"


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", [Call.CREATE, Call.DELETE])
def test_a_worker_that_dies_in_a_call_leaves_one_instance_or_none(world: World, call: Call, moment: str) -> None:
    proxy = world.declare()
    if call is Call.DELETE:
        proxy = world.ready(proxy)
        operations.replace(proxy.pk, actor="test", now=world.now)
    world.backend.faults[call].append(Fault(**{moment: raising(Crash())}))
    with pytest.raises(Crash):
        world.run()
    assert world.run() == 0, "the dead worker's claim still holds"
    world.now += timedelta(minutes=2)
    proxy = world.ready(proxy)
    assert [m.provider_id for m in world.live()] == [proxy.provider_id]


def test_a_create_whose_answer_was_lost_is_adopted(world: World) -> None:
    world.backend.faults[Call.CREATE].append(lose_response())
    proxy = world.ready(world.settle(world.declare(), rounds=3))
    assert [m.provider_id for m in world.live()] == [proxy.provider_id]


def test_a_create_whose_answer_was_lost_and_whose_spec_changed_is_swept(world: World) -> None:
    world.backend.faults[Call.CREATE].append(lose_response())
    proxy = world.declare()
    world.run()
    assert len(world.live(proxy.uid)) == 1
    operations.update(proxy.pk, {"provider": "mem", "port": 8080}, actor="test", now=world.now)
    proxy = world.ready(proxy)
    assert [m.port for m in world.live(proxy.uid)] == [8080]


def test_deletion_after_a_create_whose_answer_was_lost_leaves_nothing(world: World) -> None:
    world.backend.faults[Call.CREATE].append(lose_response())
    proxy = world.declare()
    world.run()
    operations.request_deletion(proxy.pk, actor="test", now=world.now)
    for _ in range(5):
        world.run()
        world.now += timedelta(seconds=5)
    assert not Proxy.objects.filter(pk=proxy.pk).exists()
    assert world.live() == []


def test_a_refusal_says_nothing_of_an_earlier_create_whose_answer_was_lost(world: World) -> None:
    world.backend.faults[Call.CREATE].extend([lose_response(), refuse(InvalidRequest("the zone is closed"))])
    proxy = world.settle(world.declare(), rounds=3)
    assert (proxy.phase, len(world.live(proxy.uid))) == ("Failed", 1)
    operations.update(proxy.pk, {"provider": "mem", "port": 8080}, actor="test", now=world.now)
    proxy = world.ready(proxy)
    assert [m.port for m in world.live(proxy.uid)] == [8080]


def test_a_result_that_comes_after_the_claim_was_lost_is_dropped(world: World) -> None:
    proxy = world.declare()

    def another_worker_takes_over() -> None:
        world.now += timedelta(minutes=5)
        assert world.ready(proxy).phase == "Ready"

    world.backend.faults[Call.CREATE].append(Fault(before=another_worker_takes_over))
    held = claims.claim(proxy.pk, world.now, hold_for=HOLD)
    assert held is not None
    reconcile(held, world.providers, world.now)
    assert world.read(proxy).phase == "Ready"
    assert len(world.live(proxy.uid)) == 1


def test_a_change_during_a_run_is_seen_by_the_next(world: World) -> None:
    proxy = world.declare()

    def edit() -> None:
        operations.update(proxy.pk, {"provider": "mem", "port": 8080}, actor="test", now=world.now)

    world.backend.faults[Call.CREATE].append(Fault(after=edit))
    proxy = world.ready(proxy)
    assert proxy.address_port == 8080
    assert len(world.live(proxy.uid)) == 1


def test_an_external_proxy_follows_its_health_alone(world: World) -> None:
    proxy = world.declare(mode="External", endpoint={"host": "192.0.2.7"}, port=8000)
    world.run()
    proxy = world.read(proxy)
    assert (proxy.phase, proxy.address, proxy.address_port) == ("Pending", "192.0.2.7", 8000)
    assert world.prober.asked == [proxy.pk]
    world.judge(proxy, Verdict.HEALTHY)
    world.run()
    assert world.read(proxy).phase == "Ready"
    spec = {"mode": "External", "endpoint": {"host": "192.0.2.7"}, "port": 9000}
    operations.update(proxy.pk, spec, actor="test", now=world.now)
    world.run()
    proxy = world.read(proxy)
    assert (proxy.phase, proxy.address_port) == ("Pending", 9000), "the verdict was on another address"
    operations.request_deletion(proxy.pk, actor="test", now=world.now)
    world.run()
    assert not Proxy.objects.filter(pk=proxy.pk).exists()


def test_one_entry_holds_only_so_many_at_a_time(world: World) -> None:
    for _ in range(6):
        world.declare()
    configured = frozenset(world.providers.names())
    held = [claims.claim_next("mem", configured, world.now, limit=4, hold_for=HOLD) for _ in range(6)]
    assert sum(claim is not None for claim in held) == 4


def test_a_custom_resource_counts_its_generations_itself(world: World) -> None:
    proxy = operations.declare(
        "default", "cr", {"provider": "mem"}, actor="cluster", now=world.now, origin=Origin.CLUSTER, generation=4
    )

    def told(generation: int, **spec: object) -> tuple[int, int, int]:
        operations.update(
            proxy.pk,
            {"provider": "mem", **spec},
            actor="cluster",
            now=world.now,
            origin=Origin.CLUSTER,
            generation=generation,
        )
        row = world.settle(proxy)
        return row.generation, row.observed_generation, row.max_leases

    assert told(7, maxLeases=3) == (7, 7, 3)
    assert told(6, maxLeases=9) == (7, 7, 3), "an event that comes late changes nothing"
    assert told(8, maxLeases=3) == (8, 8, 3), "a change that is none to us is observed all the same"
    assert world.history(proxy).count("SpecChanged") == 1


def test_the_history_tells_what_an_edit_changed(world: World) -> None:
    user_data = {"inline": "#cloud-config\n# hush"}
    proxy = world.declare(attributes={"geo": "eu", "tier": "a"}, cloudInit=user_data)
    statuses = {"expectedStatus": [200, 204]}
    after = {"provider": "mem", "attributes": {"geo": "us"}, "maxLeases": 3, "healthCheck": statuses}
    operations.update(proxy.pk, after, actor="olive", now=world.now)
    told = ProxyEvent.objects.get(kind="SpecChanged")
    assert told.message == (
        "attributes.geo eu → us; attributes.tier a → (none); maxLeases 10 → 3; "
        "healthCheck.expectedStatus (none) → 200, 204; cloudInit.inline changed"
    )
    assert told.actor == "olive"

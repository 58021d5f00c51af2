"""The life of proxies under every fault at once: decisions, executor, claims, leases and GC on a backend that fails.

A state machine drives random schedules of edits, deletions, provider errors, hangs, crashes before and after each side
effect, lost responses and duplicate deliveries. What must hold is asked after every step, and once more when the
backend answers again and everyone has had the time to finish. A failure shrinks to a short list of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck
from hypothesis import Phase as Stage
from hypothesis import settings as configure
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from leasing import allocation, endings
from leasing.allocation import Wish
from leasing.ids import uuid7
from leasing.models import EndCause, EndedLease, Lease, ProxyLoad
from leasing.selectors import Selector
from providers.errors import AuthenticationFailed, InvalidRequest, ProviderError, QuotaExceeded, Unavailable
from providers.gcp.tests.standin.backend import GceBackend
from providers.proxmox.tests.backend import PveBackend
from providers.registry import entry_of
from providers.tests.backend import Call, Crash, Fault, Life, lose_response, raising, refuse
from providers.tests.memory import MemoryBackend
from proxyfleet.fleet import claims, operations
from proxyfleet.fleet.models import Proxy, ProxyEvent
from proxyfleet.fleet.operations import NotAllowed
from proxyfleet.fleet.phases import Phase, Verdict
from proxyfleet.fleet.reconciler import reconcile
from proxyfleet.fleet.tests.world import GC_MIN_AGE, MakeBackend, World, new_world

ENTRIES = ("east", "west")
NAMES = ("a", "b", "c")
SPECS = st.fixed_dictionaries(
    {"provider": st.sampled_from(ENTRIES), "port": st.sampled_from([3128, 8080])},
    optional={"drainSeconds": st.sampled_from([0, 60]), "maxLeases": st.integers(1, 3)},
)
ERRORS: dict[str, Callable[[], ProviderError]] = {
    "unavailable": lambda: Unavailable("the backend does not answer"),
    "slow down": lambda: Unavailable("too many requests", retry_after=20),
    "quota": lambda: QuotaExceeded("no capacity"),
    "credentials": lambda: AuthenticationFailed("the token was refused"),
    "invalid": lambda: InvalidRequest("placement.zone is unknown"),
}
LIVES = st.builds(
    Life,
    provisioning_gets=st.sampled_from([0, 0, 1, 3]),
    addressless_gets=st.sampled_from([0, 0, 1]),
    fails=st.sampled_from(["", "", "", "out of memory"]),
    deleting_gets=st.sampled_from([0, 0, 1, 3]),
)

BACKENDS: dict[str, tuple[MakeBackend, int]] = {
    "memory": (MemoryBackend, 1),
    "gcp": (GceBackend, 50),
    "proxmox": (PveBackend, 100),
}
"""What the schedules run on, and how many on the backend in memory stand against one there: a server costs more."""

TOUCHED = (Proxy, ProxyEvent, ProxyLoad, Lease, EndedLease)

PROXIES_NOW = """
select p.uid, p.phase, p.phase = 'Ready' and not p.cordoned and p.deletion_requested_at is null, l.leasable, l.active,
  p.provider_id,
  (select count(*) from leasing_lease where proxy_id = p.id)
from fleet_proxy p join leasing_proxyload l on l.proxy_id = p.id
"""
LEASES_NOW = """
select l.id, p.provider_id, p.instance_serial from leasing_lease l join fleet_proxy p on p.id = l.proxy_id
"""


def clear_away_what_was_rolled_back() -> None:
    """The rows of earlier schedules still take room, through which every statement of the next ones would read."""
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM {', '.join(model._meta.db_table for model in TOUCHED)}")


class Fleet(RuleBasedStateMachine):
    """Workers, operators, crawlers and a backend, all at once. Every step is one thing that can happen."""

    proxies: Bundle[int] = Bundle("proxies")

    backend: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        clear_away_what_was_rolled_back()
        self._stack = ExitStack()
        self.world: World = self._stack.enter_context(new_world(*ENTRIES, make_backend=BACKENDS[self.backend][0]))
        self._transaction = transaction.atomic()
        self._transaction.__enter__()
        self.leased: dict[UUID, int] = {}
        """The instance that each lease was given on."""
        self.zombies: set[object] = set()
        """Proxies whose claim was lost while a call was under way: what that call makes is for the GC to find."""

    def teardown(self) -> None:
        try:
            self.everything_ends_well()
        finally:
            transaction.set_rollback(True)
            self._transaction.__exit__(None, None, None)
            self._stack.close()

    @initialize(target=proxies, spec=SPECS, calm=st.booleans())
    def begin(self, spec: dict[str, Any], calm: bool) -> int:
        """Many schedules begin with a proxy that got Ready: most of what can go wrong comes after."""
        proxy = self.world.declare(NAMES[0], **spec)
        if calm:
            self.all_goes_well_for_a_while()
        return proxy.pk

    # What operators do

    @rule(target=proxies, name=st.sampled_from(NAMES), spec=SPECS)
    def declare(self, name: str, spec: dict[str, Any]) -> Any:
        if Proxy.objects.filter(name=name, deletion_requested_at=None).exists():
            return multiple()
        return self.world.declare(name, **spec).pk

    @rule(pk=proxies, spec=SPECS)
    def edit(self, pk: int, spec: dict[str, Any]) -> None:
        with suppress(NotAllowed, Proxy.DoesNotExist):
            operations.update(pk, self.world.complete(spec), actor="", now=self.world.now)

    @rule(pk=consumes(proxies))
    def delete(self, pk: int) -> None:
        with suppress(Proxy.DoesNotExist):
            operations.request_deletion(pk, actor="", now=self.world.now)

    @rule(pk=proxies)
    def replace(self, pk: int) -> None:
        with suppress(NotAllowed, Proxy.DoesNotExist):
            operations.replace(pk, actor="", now=self.world.now)

    @rule(pk=proxies, cordoned=st.booleans())
    def cordon(self, pk: int, cordoned: bool) -> None:
        with suppress(NotAllowed, Proxy.DoesNotExist):
            (operations.cordon if cordoned else operations.uncordon)(pk, actor="", now=self.world.now)

    @rule(pk=proxies)
    def reconcile_now(self, pk: int) -> None:
        with suppress(Proxy.DoesNotExist):
            operations.reconcile_now(pk, now=self.world.now)

    # What crawlers do

    @rule(count=st.integers(1, 3), ttl=st.sampled_from([30, 600]))
    def lease(self, count: int, ttl: int) -> None:
        now = self.world.now
        ids = [uuid7(now) for _ in range(count)]
        for lease in allocation.grant(
            Wish(Selector(()), target=""), ids, now=now, expires_at=now + timedelta(seconds=ttl)
        ):
            proxy = Proxy.objects.get(pk=lease.proxy.id)
            assert proxy.phase == Phase.READY, f"leased while {proxy.phase}"
            assert not proxy.cordoned
            assert proxy.deletion_requested_at is None
            self.leased[lease.id] = proxy.instance_serial

    @rule()
    def release(self) -> None:
        if lease := Lease.objects.order_by("created_at", "proxy_id").first():
            endings.release(lease.id, cause=EndCause.RELEASED, now=self.world.now)

    # What the schedule does

    @rule(seconds=st.sampled_from([1, 5, 30, 120, 1000]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    @rule()
    def work(self) -> None:
        with suppress(Crash):
            self.world.run(limit=10)

    @rule(pk=proxies)
    def a_message_is_delivered_twice(self, pk: int) -> None:
        for _ in range(2):
            if held := claims.claim(pk, self.world.now, hold_for=self.world.hold):
                with suppress(Crash):
                    reconcile(held, self.world.providers, self.world.now)

    @rule()
    def relist(self) -> None:
        with suppress(Crash, ProviderError):
            self.world.relist()

    @rule()
    def collect_orphans(self) -> None:
        with suppress(Crash, ProviderError):
            self.world.collect_orphans()

    @rule()
    def expire_leases(self) -> None:
        endings.end_expired(self.world.now)

    @rule(pk=proxies, verdict=st.sampled_from([Verdict.HEALTHY, Verdict.HEALTHY, Verdict.UNHEALTHY]))
    def probe(self, pk: int, verdict: Verdict) -> None:
        proxy = Proxy.objects.filter(pk=pk).exclude(address="").first()
        if proxy:
            self.world.judge(proxy, verdict, "" if verdict is Verdict.HEALTHY else "Timeout")

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        """Workers work, probes succeed, time passes: the way to Ready, which random steps alone seldom find."""
        with suppress(Crash):
            for _ in range(3):
                self.world.run()
                self.world.now += timedelta(seconds=2)
            for proxy in Proxy.objects.exclude(address="").exclude(verdict=Verdict.HEALTHY, phase=Phase.READY):
                self.world.judge(proxy, Verdict.HEALTHY)
            self.world.run()

    # What goes wrong

    @rule(call=st.sampled_from(Call), error=st.sampled_from(sorted(ERRORS)))
    def the_backend_will_refuse(self, call: Call, error: str) -> None:
        self.world.backend.faults[call].append(refuse(ERRORS[error]()))

    @rule(call=st.sampled_from([Call.CREATE, Call.DELETE]))
    def an_answer_will_be_lost(self, call: Call) -> None:
        self.world.backend.faults[call].append(lose_response())

    @rule(call=st.sampled_from(Call), moment=st.sampled_from(["before", "after"]))
    def a_worker_will_die(self, call: Call, moment: str) -> None:
        self.world.backend.faults[call].append(Fault(**{moment: raising(Crash())}))

    @rule(
        call=st.sampled_from([Call.CREATE, Call.GET, Call.DELETE]),
        moment=st.sampled_from(["before", "after"]),
        meanwhile=st.none() | st.just("delete") | SPECS,
    )
    def a_call_will_hang(self, call: Call, moment: str, meanwhile: Any) -> None:
        """For longer than the claim: another worker takes over, perhaps for another end; the call still returns."""

        def hang() -> None:
            held = list(Proxy.objects.filter(claim_expires_at__gt=self.world.now))
            self.zombies.update(proxy.uid for proxy in held)
            self.world.now += self.world.hold + timedelta(minutes=4)
            for proxy in held if meanwhile else []:
                self.delete(proxy.pk) if meanwhile == "delete" else self.edit(proxy.pk, meanwhile)
            self.work()
            self.work()

        self.world.backend.faults[call].append(Fault(**{moment: hang}))

    @rule(life=LIVES)
    def the_next_instance_will_be(self, life: Life) -> None:
        self.world.backend.lives.append(life)

    @rule(fate=st.sampled_from(["vanish", "stop", "fail"]), index=st.integers(0, 5))
    def an_instance_dies(self, fate: str, index: int) -> None:
        live = self.world.live()
        if not live:
            return
        victim = live[index % len(live)].provider_id
        if fate == "vanish":
            self.world.backend.vanish(victim)
        elif fate == "stop":
            self.world.backend.stop(victim)
        else:
            self.world.backend.fail(victim, "the host broke")

    @rule(answers=st.booleans())
    def the_backend_goes_and_comes(self, answers: bool) -> None:
        zones = self.world.backend.unreachable_zones
        zones.clear() if answers else zones.add(self.world.backend.zone)

    # What always holds

    @invariant()
    def what_always_holds(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(PROXIES_NOW)
            proxies = {row[0]: row[1:] for row in cursor.fetchall()}
            cursor.execute(LEASES_NOW)
            leases = cursor.fetchall()
        alive = [machine.identity.proxy_uid for machine in self.world.live()]
        for uid in set(alive) - self.zombies:
            assert alive.count(uid) == 1, "two live instances of one proxy"
            assert uid in proxies, "a proxy went before its instance"
        for phase, may_be_leased, leasable, active, provider_id, leased in proxies.values():
            assert phase != Phase.READY or provider_id in self.world.judged, "Ready, and never probed"
            assert leasable == may_be_leased, f"{leasable=} while {phase}"
            assert active == leased, "the count of leases drifted"
        for lease, provider_id, serial in leases:
            assert provider_id, "a lease on nothing"
            assert serial == self.leased[lease], "a lease went over to another instance"

    def everything_ends_well(self) -> None:
        """The backend answers again, and everyone gets the time to finish."""
        world = self.world
        world.backend.recover()
        for _ in range(12):
            world.now += GC_MIN_AGE
            self.all_goes_well_for_a_while()
            endings.end_expired(world.now)
            world.relist()
            world.collect_orphans()
            if not (problems := list(self.what_is_not_well())):
                return
        raise AssertionError("; ".join(problems))

    def what_is_not_well(self) -> Iterator[str]:
        owners = {proxy.uid: proxy for proxy in Proxy.objects.all()}
        for uid, proxy in owners.items():
            machines = [(m.provider_id, entry_of(m.provider_id), m.port) for m in self.world.live(uid)]
            status = f"{proxy} is {proxy.phase}: {proxy.reason} {proxy.message}"
            if proxy.deletion_requested_at is not None:
                yield f"never went: {status}"
            elif proxy.phase == Phase.FAILED and proxy.reason == "InvalidRequest":
                continue
            elif proxy.phase != Phase.READY:
                yield f"never got ready: {status}"
            elif machines != [(proxy.provider_id, proxy.provider, proxy.port)]:
                yield f"has other instances than its row and spec say: {machines}: {status}"
        for machine in self.world.backend.machines():
            if machine.identity.proxy_uid not in owners:
                yield f"an instance without owner: {machine.provider_id}"
        for lease in Lease.objects.exclude(proxy__phase=Phase.READY):
            yield f"a lease on a proxy that is {lease.proxy.phase}"


SETTINGS = configure(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    stateful_step_count=30,
    print_blob=True,
    # Without `explain`, whose tracing of every line makes shrinking take ten times as long.
    phases=[Stage.explicit, Stage.reuse, Stage.generate, Stage.shrink],
)


@pytest.mark.django_db(transaction=True)  # in one around all schedules, VACUUM could clear nothing away
@pytest.mark.timeout(1200)
@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_random_schedules(backend: str, request: pytest.FixtureRequest) -> None:
    schedules = max(1, request.config.getoption("--schedules") // BACKENDS[backend][1])
    machine = type("Fleet", (Fleet,), {"backend": backend})
    run_state_machine_as_test(machine, settings=configure(SETTINGS, max_examples=schedules))

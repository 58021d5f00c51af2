"""What operators, providers and the health engine do to a fleet while it is leased, as a program.

The proxies that it declares and disturbs are its own: those that were there before are left alone. A line of JSON on
standard output tells of each span of time during which a proxy certainly was not to be leased: from after the commit
that said so to before the one that took it back. The first line says that the fleet is ready. Standard input ends it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Callable

import django

django.setup()

from django.utils import timezone  # noqa: E402  needs the settings

from proxyfleet.fleet import operations  # noqa: E402  models can be imported only now
from proxyfleet.fleet.models import Proxy  # noqa: E402
from proxyfleet.fleet.phases import Phase, Verdict  # noqa: E402
from proxyfleet.fleet.tests.world import World, new_world  # noqa: E402

STEP_SECONDS = 0.02


class ControlPlane:
    def __init__(self, world: World, fleet: str, leases: int) -> None:
        self._world, self._fleet, self._leases = world, fleet, leases
        self._acts: list[Callable[[Proxy], Proxy]] = [
            self._cordon,
            self._sicken,
            self._replace,
            self._lose,
            self._delete,
            self._resize,
        ]

    def declare(self, name: str) -> Proxy:
        self._tick()
        return self._until_ready(self._world.declare(name, **self._spec(self._leases)))

    def disturb(self, proxy: Proxy) -> Proxy:
        """One thing happens to a Ready proxy, and it is Ready again, or another of its name is."""
        return random.choice(self._acts)(proxy)

    def _spec(self, leases: int) -> dict[str, object]:
        drain = random.choice([0, 0, 1])
        return {"maxLeases": leases, "drainSeconds": drain, "attributes": {"fleet": self._fleet}}

    def _cordon(self, proxy: Proxy) -> Proxy:
        self._tick()
        operations.cordon(proxy.pk, actor="storm", now=self._world.now)
        since = time.time()
        _pause()
        self._tell("cordoned", proxy, since, time.time())
        operations.uncordon(proxy.pk, actor="storm", now=self._world.now)
        return proxy

    def _sicken(self, proxy: Proxy) -> Proxy:
        """As by the health engine."""
        self._tick()
        self._world.judge(proxy, Verdict.UNHEALTHY)
        while self._world.step(proxy).phase == Phase.READY:
            self._tick()
        since = time.time()
        _pause()
        return self._until_ready(proxy, why="unhealthy", since=since)

    def _replace(self, proxy: Proxy) -> Proxy:
        self._tick()
        operations.replace(proxy.pk, actor="storm", now=self._world.now)
        return self._away(proxy, "replaced")

    def _lose(self, proxy: Proxy) -> Proxy:
        """As by whoever deletes the instance behind our back."""
        self._world.backend.vanish(proxy.provider_id)
        return self._away(proxy, "lost")

    def _away(self, proxy: Proxy, why: str) -> Proxy:
        while True:
            self._tick()
            now = self._world.step(proxy)
            if now.phase != Phase.READY:
                return self._until_ready(proxy, why=why, since=time.time())
            time.sleep(STEP_SECONDS)

    def _delete(self, proxy: Proxy) -> Proxy:
        """Drained, then gone, then another of the same name."""
        self._tick()
        operations.request_deletion(proxy.pk, actor="storm", now=self._world.now)
        since = time.time()
        try:
            while True:
                self._tick()
                self._world.step(proxy)
                time.sleep(STEP_SECONDS)
        except Proxy.DoesNotExist:
            pass
        self._tick()
        again = self._world.declare(proxy.name, **self._spec(self._leases))
        return self._until_ready(again, why="deleted", since=since)

    def _resize(self, proxy: Proxy) -> Proxy:
        """Perhaps below the leases that are out."""
        self._tick()
        spec = self._world.complete({"provider": "mem"} | self._spec(random.randint(1, self._leases)))
        operations.update(proxy.pk, spec, actor="storm", now=self._world.now)
        self._tell("resized")
        return self._world.read(proxy)

    def _until_ready(self, proxy: Proxy, *, why: str = "", since: float = 0) -> Proxy:
        while True:
            self._tick()
            before = time.time()
            current = self._world.step(proxy)
            if current.phase == Phase.READY:
                if why:
                    self._tell(why, proxy, since, before)
                return current
            if current.address and (current.probed_serial, current.verdict) != (
                current.instance_serial,
                Verdict.HEALTHY,
            ):
                self._world.judge(current, Verdict.HEALTHY)
            else:
                time.sleep(STEP_SECONDS)

    def _tick(self) -> None:
        self._world.now = timezone.now()

    def _tell(self, what: str, proxy: Proxy | None = None, since: float = 0, until: float = 0) -> None:
        told = {"what": what, "proxy": str(proxy) if proxy else "", "begin": since, "end": until}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def _pause() -> None:
    time.sleep(random.uniform(0.05, 0.3))


def _await_end(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.storm.control_plane")
    parser.add_argument("fleet")
    parser.add_argument("--proxies", type=int, required=True)
    parser.add_argument("--leases", type=int, required=True)
    arguments = parser.parse_args()
    stop = threading.Event()
    with new_world() as world:
        plane = ControlPlane(world, arguments.fleet, arguments.leases)
        proxies = [plane.declare(f"{arguments.fleet}-{number}") for number in range(arguments.proxies)]
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        threading.Thread(target=_await_end, args=[stop], daemon=True).start()
        while not stop.is_set():
            number = random.randrange(len(proxies))
            proxies[number] = plane.disturb(proxies[number])


if __name__ == "__main__":
    main()

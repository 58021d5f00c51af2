"""Crawlers that lease without pause and write down what they are told."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPMessage
from typing import Any

from proxyfleet.local.addresses import Address
from tests.api_processes import TOKEN
from tests.storm.judge import Span, Told

LONG, SHORT = 60, 1
"""Seconds to live: of a lease that is given back, and of one that is left to expire."""
FORGETFUL = 0.03
"""Share of the leases that are never given back."""
OTHERWISE_BLOCKED = {"result": "blocked", "target": "other.example", "cooldownSeconds": 1}
"""Keeps nobody here from the proxy."""
BY_THE_FLEET = frozenset({"proxy_deleted", "proxy_replaced", "instance_lost", "address_changed"})
"""How a lease may end that its client did not end."""


@dataclass(slots=True)
class Notes:
    """Of all clients."""

    told: list[Told] = field(default_factory=list)
    refused: list[Span] = field(default_factory=list)
    """When "none available" was asked for, and when it was answered."""
    events: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, event: str) -> None:
        with self.lock:
            self.events[event] += 1


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: HTTPMessage
    content: bytes
    is_repeated: bool
    """An earlier try of the same request may have been carried out, by a process that died before it answered."""

    @property
    def body(self) -> Any:
        return json.loads(self.content)


class Client:
    """Goes on at another process when its own dies, with the same request.

    A plain one: thirty-two of them share a processor with the servers that they are to keep busy.
    """

    def __init__(self, addresses: list[Address], number: int = 0, *, token: str = TOKEN) -> None:
        self._connections = [HTTPConnection(address.host, address.port, timeout=60) for address in addresses]
        self._number = number % len(addresses)
        self._token = token

    def lease(self, **wish: object) -> Answer:
        return self._call("POST", "", wish, {"Idempotency-Key": str(uuid.uuid4())})

    def read(self, lease_id: str) -> Answer:
        return self._call("GET", f"/{lease_id}")

    def renew(self, lease_id: str, seconds: int) -> Answer:
        return self._call("POST", f"/{lease_id}/renew", {"ttlSeconds": seconds})

    def report(self, lease_id: str, **said: object) -> Answer:
        return self._call("POST", f"/{lease_id}/report", said)

    def release(self, lease_id: str) -> None:
        assert self._call("DELETE", f"/{lease_id}").status == 204

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})}
        content = None if body is None else json.dumps(body)
        # Once more at each, as a connection that was kept may belong to a process that died since.
        for attempt in range(2 * len(self._connections)):
            connection = self._connections[self._number]
            try:
                connection.request(method, f"/v1/leases{path}", content, sent)
                response = connection.getresponse()
                return Answer(response.status, response.headers, response.read(), is_repeated=attempt > 0)
            except (HTTPException, ConnectionError):
                connection.close()
                self._number = (self._number + 1) % len(self._connections)
        raise AssertionError("every process is gone")


class Crawler:
    def __init__(self, client: Client, fleet: str, largest_batch: int, notes: Notes) -> None:
        self._client, self._fleet, self._largest_batch, self._notes = client, fleet, largest_batch, notes

    def crawl(self, until: float) -> None:
        """Lease, hold for a moment, release, again and again; of each kind of call some."""
        while time.time() < until:
            forgets = random.random() < FORGETFUL
            leases = self._lease(SHORT if forgets else LONG)
            if forgets:
                self._forget(leases)
            else:
                time.sleep(random.uniform(0, 0.02))
                for lease in leases:
                    self._use(lease)

    def _lease(self, ttl: int) -> list[Told]:
        single = self._largest_batch == 1 and random.random() < 0.5
        count = random.randint(1, self._largest_batch)
        wish: dict[str, object] = {"ttlSeconds": ttl, "selector": {"fleet": self._fleet}, "target": "site.example"}
        asked = time.time()
        answer = self._client.lease(**wish if single else {**wish, "count": count})
        granted = time.time()
        if answer.status == 409:
            assert answer.body["code"] == "no_proxy_available"
            with self._notes.lock:
                self._notes.refused.append(Span(asked, granted))
            return []
        assert answer.status == 201, answer.content
        leases = [answer.body] if single else answer.body["items"]
        assert len({lease["proxy"]["id"] for lease in leases}) == len(leases) <= count, "not distinct"
        told = []
        for lease in leases:
            ends = datetime.fromisoformat(lease["expiresAt"]).timestamp()
            proxy = lease["proxy"]
            # A lease that was given before is shown with its proxy as that is by now.
            assert answer.is_repeated or proxy["phase"] == "Ready", proxy
            told.append(Told(lease["leaseID"], proxy["id"], proxy["url"], asked, granted, ends, ends))
        with self._notes.lock:
            self._notes.told += told
            self._notes.events["granted"] += len(told)
        return told

    def _forget(self, leases: list[Told]) -> None:
        """Leave them to expire; whoever has no slot for it goes on asking only after."""
        for lease in leases:
            self._notes.count("left to expire")
            time.sleep(max(0.0, lease.possible_until - time.time()))

    def _use(self, lease: Told) -> None:
        confirmed = lease.granted
        for use in (self._renew, self._report):
            if random.random() < 0.2:
                sent = time.time()
                if not use(lease):
                    # It ended at some moment since we last heard that it goes on.
                    lease.certain_until, lease.possible_until = confirmed, time.time()
                    self._client.release(lease.lease_id)
                    return
                confirmed = sent
        lease.certain_until = min(lease.certain_until, time.time())
        self._client.release(lease.lease_id)
        lease.possible_until = min(lease.possible_until, time.time())
        self._notes.count("released")

    def _renew(self, lease: Told) -> bool:
        answer = self._client.renew(lease.lease_id, LONG)
        if not self._goes_on(answer):
            return False
        lease.certain_until = lease.possible_until = datetime.fromisoformat(answer.body["expiresAt"]).timestamp()
        self._notes.count("renewed")
        return True

    def _report(self, lease: Told) -> bool:
        said: dict[str, object] = random.choice(
            [
                {"result": "ok"},
                {"result": "timeout"},
                {"result": "blocked", "target": "b.example", "cooldownSeconds": 1},
            ]
        )
        if not self._goes_on(self._client.report(lease.lease_id, **said)):
            return False
        self._notes.count("reported")
        return True

    def _goes_on(self, answer: Answer) -> bool:
        if answer.status == 410:
            cause = answer.body["cause"]
            assert cause in BY_THE_FLEET, f"a lease that nobody gave back ended: {answer.body}"
            self._notes.count(cause)
            return False
        assert answer.status == 200, answer.content
        return True

"""Which proxies match a selector, remembered by each process: a hint for whoever grants leases.

It may be behind the database by MAX_AGE_SECONDS, and nothing bad comes of that. A candidate names the version of the
proxy's load row that it was read with, and a grant takes a slot on that version only: every change of what a selector
asks for, or of whether the proxy can be leased, gives the row another.

There is no thread: whoever finds the index old asks the database what changed, which is one look at the index on
`version`. The versions are transaction ids, so a change is found however late its transaction commits; a sequence
would hand out its numbers before.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from leasing.database import fetch
from leasing.selectors import Selector

MAX_AGE_SECONDS = 0.2
RELOAD_SECONDS = 60
"""Everything is read anew this often. What was deleted between two looks is seen by that alone."""
EXACT = 64
"""Up to so many proxies that match, all are candidates, and the least loaded of them gets the lease."""
SAMPLE = 8
"""Beyond, the least loaded of a few is taken: the load of any two proxies stays within 3 leases of each other."""
SELECTORS = 256
"""Selectors whose proxies are remembered, those asked for last."""

_COLUMNS = """
select load.proxy_id, load.version, load.leasable, proxy.namespace || '/' || proxy.name, proxy.attributes
from leasing_proxyload load join fleet_proxy proxy on proxy.id = load.proxy_id
"""
_HORIZON = "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_ALL = f"{_COLUMNS} where load.leasable"
# A version of the future came with a dump from elsewhere; it is no change. Our own transaction is not the future.
_CHANGED = f"""
{_COLUMNS} where load.version >= %(since)s::bigint and load.version < greatest(
  pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_xact_id_if_assigned()::text::bigint + 1
)
"""


class Candidate(NamedTuple):
    proxy_id: int
    version: int
    """Of its load row, at the time that it was found to match."""


@dataclass(frozen=True, slots=True)
class _Entry:
    candidate: Candidate
    leasable: bool
    name: str
    attributes: dict[str, str]


@dataclass(slots=True)
class _Bag:
    """A set of proxies that a few can be drawn from without looking at all."""

    ids: list[int] = field(default_factory=list)
    _places: dict[int, int] = field(default_factory=dict)

    def add(self, proxy_id: int) -> None:
        if proxy_id not in self._places:
            self._places[proxy_id] = len(self.ids)
            self.ids.append(proxy_id)

    def discard(self, proxy_id: int) -> None:
        place = self._places.pop(proxy_id, None)
        if place is None:
            return
        last = self.ids.pop()
        if last != proxy_id:
            self.ids[place] = last
            self._places[last] = place


class FleetIndex:
    """Safe to use from many threads."""

    def __init__(self, max_age: float = MAX_AGE_SECONDS) -> None:
        self._max_age = max_age
        self._refreshing = threading.Lock()
        self._lock = threading.Lock()
        self._entries: dict[int, _Entry] = {}
        self._bags: OrderedDict[Selector, _Bag] = OrderedDict()
        self._horizon = 0
        """Every transaction before it had ended when we last looked."""
        self._looked_at = self._loaded_at = float("-inf")

    def candidates(self, selector: Selector, *, exclude: Collection[str], wanted: int) -> list[Candidate]:
        """Proxies that match and could be leased, as far as is known: all when they are few, else some of them."""
        self._keep_up()
        size = max(SAMPLE, 2 * wanted) + len(exclude)
        with self._lock:
            ids = self._bag(selector).ids
            drawn = ids if len(ids) <= max(EXACT, size) else random.sample(ids, size)
            entries = self._entries
            if exclude:
                return [entries[id_].candidate for id_ in drawn if entries[id_].name not in exclude]
            return [entries[id_].candidate for id_ in drawn]

    def _bag(self, selector: Selector) -> _Bag:
        bag = self._bags.get(selector)
        if bag is not None:
            self._bags.move_to_end(selector)
            return bag
        bag = self._bags[selector] = _Bag()
        for id_, entry in self._entries.items():
            if selector.matches(entry.attributes):
                bag.add(id_)
        if len(self._bags) > SELECTORS:
            self._bags.popitem(last=False)
        return bag

    def _keep_up(self) -> None:
        """Look for changes if that is due; one thread does, and only the first of all makes the others wait."""
        if time.monotonic() - self._looked_at < self._max_age:
            return
        if self._refreshing.acquire(blocking=self._horizon == 0):
            try:
                self._refresh()
            finally:
                self._refreshing.release()

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < self._max_age:
            return  # another thread did, while we waited
        ((horizon,),) = fetch(_HORIZON)
        if now - self._loaded_at > RELOAD_SECONDS:
            entries = {entry.candidate.proxy_id: entry for entry in _read(_ALL)}
            with self._lock:
                self._entries = entries
                self._bags.clear()
            self._loaded_at = now
        else:
            changed = list(_read(_CHANGED, since=self._horizon))
            with self._lock:
                for entry in changed:
                    self._note(entry)
        self._horizon, self._looked_at = horizon, now

    def _note(self, entry: _Entry) -> None:
        id_ = entry.candidate.proxy_id
        if entry.leasable:
            self._entries[id_] = entry
        else:
            self._entries.pop(id_, None)
        for selector, bag in self._bags.items():
            if entry.leasable and selector.matches(entry.attributes):
                bag.add(id_)
            else:
                bag.discard(id_)


def _read(query: str, **params: int) -> Iterable[_Entry]:
    for proxy_id, version, leasable, name, attributes in fetch(query, params):
        yield _Entry(Candidate(proxy_id, version), leasable, name, json.loads(attributes))


index = FleetIndex()
"""That of this process."""

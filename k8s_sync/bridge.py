"""One process of the bridge: a candidate that works while it leads."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime

from django.db import Error as DatabaseTrouble

from k8s_sync.crew import Crew
from k8s_sync.errors import ClusterError, Unreachable
from k8s_sync.leader import GIVE_UP_SECONDS, RETRY_SECONDS, Leader
from k8s_sync.rights import Rights
from k8s_sync.term import Term

logger = logging.getLogger(__name__)

RIGHTS_SECONDS = 30.0
"""How often it is asked whether this account still may do what it must."""
HUNG_SECONDS = 60.0
"""A round takes no longer, not even one in which the API server says nothing and all threads have to end."""


class Bridge:
    """``run`` in the main thread; the rest from any."""

    def __init__(
        self, leader: Leader, rights: Rights, new_term: Callable[[], Term], clock: Callable[[], datetime]
    ) -> None:
        self._leader = leader
        self._rights = rights
        self._new_term = new_term
        self._clock = clock
        self._stopping = threading.Event()
        self._term: Term | None = None
        self._asked_at = -math.inf
        """When the Lease was last looked at, by the monotonic clock."""
        self._trouble = ""
        """Why it could not be."""
        self._watchers = Crew()
        self._watchers.add("look at rights", self._look_at_rights)
        self._round_at = time.monotonic()

    def run(self) -> None:
        """Returns after ``stop``. Raises what a thread failed of: this process is of no use then."""
        with ExitStack() as at_the_end:
            at_the_end.callback(self._resign)
            at_the_end.callback(self._end_term)
            at_the_end.callback(self._watchers.stop)
            self._watchers.start()
            while not self._stopping.is_set():
                self._round_at = time.monotonic()
                self._campaign()
                self._work()
                self._stopping.wait(RETRY_SECONDS)

    def stop(self) -> None:
        self._stopping.set()

    @property
    def is_alive(self) -> bool:
        return time.monotonic() < self._round_at + HUNG_SECONDS

    def problem(self) -> str:
        """What keeps this process from its work; empty when nothing does. A candidate is ready when it could lead."""
        term, found = self._term, [self._rights.problem()]
        if time.monotonic() > self._asked_at + GIVE_UP_SECONDS:
            found.append(f"the Lease can't be looked at: {self._trouble or 'nobody has tried yet'}")
        elif term is not None:
            found.append(term.problem())
        return "; ".join(filter(None, found))

    def _campaign(self) -> None:
        try:
            self._leader.campaign(self._clock())
        except ClusterError as error:
            if self._trouble != str(error):
                logger.warning("The Lease can't be looked at: %s", error)
            self._trouble = str(error)
        else:
            self._asked_at, self._trouble = time.monotonic(), ""

    def _look_at_rights(self) -> None:
        while True:
            try:
                self._rights.look()
            except ClusterError as error:
                logger.debug("Rights can't be looked at: %s", error)
            if self._watchers.is_stopping(wait=RIGHTS_SECONDS):
                return

    def _work(self) -> None:
        if not self._leader.leads():
            if self._term is not None:
                logger.warning("%s leads no more", self._leader.identity)
            self._end_term()
        elif self._term is None:
            self._begin_term()
        else:
            self._term.check()

    def _begin_term(self) -> None:
        term = self._new_term()
        try:
            term.start()
        except (Unreachable, DatabaseTrouble) as error:
            logger.warning("The work could not be begun yet: %s", error)
        else:
            self._term = term

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            term.stop()
            term.check()

    def _resign(self) -> None:
        try:
            self._leader.resign(self._clock())
        except ClusterError as error:
            logger.warning("The Lease could not be given back; it ends by itself: %s", error)

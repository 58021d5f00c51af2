"""What a process of the concurrency tests is told to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Orders:
    role: str = "lease"
    """``lease``: lease and release; ``sweep``: end what expired; ``recycle``: end whole proxies."""
    clients: int = 8
    """Threads, each of which works for itself."""
    rounds: int = 25
    """How often each leases; the other roles work until they are told to stop."""
    largest_batch: int = 1
    ttl_milliseconds: int = 60_000

"""Celery's queues: one for each provider entry, so that a silent backend stalls nobody else."""

DEFAULT_QUEUE = "default"

CHECK_QUEUE = "checks"
"""Checks of backends: behind the work of a busy entry they would be late, and before it they would delay it."""

SENT_AT = "proxyfleet_sent_at"
"""Header of each message: when it was sent, in seconds since the epoch."""


def queue_of(entry: str) -> str:
    return f"provider.{entry}"

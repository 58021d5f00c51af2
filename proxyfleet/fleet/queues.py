"""Celery's queues: one for each provider entry, so that a silent backend stalls nobody else."""

DEFAULT_QUEUE = "default"


def queue_of(entry: str) -> str:
    return f"provider.{entry}"

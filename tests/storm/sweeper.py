"""Ends what expired, as the worker's task does, but all the time: ``python -m tests.storm.sweeper``, until killed."""

from __future__ import annotations

import time

import django

django.setup()

from leasing import tasks  # noqa: E402  models can be imported only now

if __name__ == "__main__":
    while True:
        tasks.expire_leases()
        time.sleep(0.02)

"""``manage.py relist``: notice now what changed at the providers while no worker was looking."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from proxyfleet.fleet import tasks
from proxyfleet.fleet.backends import providers


class Command(BaseCommand):
    help = "List the instances of every provider entry, and reconcile at once the proxies that lost theirs."

    def handle(self, **_options: Any) -> None:
        for entry in providers().names():
            if changed := tasks.relist(entry=entry):
                tasks.reconcile(entry=entry)
                self.stdout.write(f"{entry}: {changed} proxies changed")

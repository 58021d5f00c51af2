"""``manage.py leave_cluster``: proxies that a cluster declared become this database's own, once its bridge is off."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from proxyfleet.conf import settings
from proxyfleet.fleet import operations
from proxyfleet.fleet.models import ClusterMirror, Origin, Proxy

ACTOR = "leave_cluster"


class Command(BaseCommand):
    help = "Take over the proxies that a cluster declared: their instances and leases stay, their spec is edited here."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--namespace", help="only the proxies of this namespace")
        parser.add_argument("--delete", action="store_true", help="then have them go, with their instances")

    def handle(self, *, namespace: str | None, delete: bool, **_options: Any) -> None:
        if settings().cluster_sync:
            raise CommandError("The bridge is on: set PROXYFLEET_CLUSTER_SYNC=false for every process, and stop it.")
        rows = Proxy.objects.filter(origin=Origin.CLUSTER).order_by("namespace", "name", "pk")
        if namespace is not None:
            rows = rows.filter(namespace=namespace)
        for proxy_id in list(rows.values_list("pk", flat=True)):
            try:
                proxy = operations.leave_cluster(proxy_id, actor=ACTOR, now=timezone.now())
                if delete:
                    operations.request_deletion(proxy_id, actor=ACTOR, now=timezone.now())
            except Proxy.DoesNotExist:
                continue  # it was on its way out
            self.stdout.write(f"{proxy}: {'deletion asked for' if delete else 'taken over'}")
        if not Proxy.objects.filter(origin=Origin.CLUSTER).exists():
            # Nothing is left that another cluster could make look deleted.
            ClusterMirror.objects.all().delete()

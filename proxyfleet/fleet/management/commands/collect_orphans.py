"""Looks for instances of this fleet that no proxy holds, and deletes them."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from providers.errors import ProviderError
from providers.registry import UnknownProvider
from proxyfleet.fleet.backends import providers
from proxyfleet.fleet.completeness import MirrorIncomplete
from proxyfleet.fleet.orphans import Orphan, sweep

HEADERS = ("ENTRY", "PROVIDER ID", "OWNER", "AGE", "ACTION", "MESSAGE")


class Command(BaseCommand):
    help = "Delete the orphans: instances of this fleet that no proxy holds. With --dry-run only list them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--entry", metavar="NAME", help="only this entry of the providers file")
        parser.add_argument("--dry-run", action="store_true", help="name what would be deleted, and delete nothing")

    def handle(self, *args: Any, entry: str | None, dry_run: bool, **options: Any) -> None:
        now = timezone.now()
        rows, problems = [], []
        for name in [entry] if entry else providers().names():
            try:
                rows += [_row(name, orphan, now) for orphan in sweep(name, now, dry_run=dry_run)]
            except (ProviderError, UnknownProvider, MirrorIncomplete) as error:
                problems.append(f"{name}: {error}")
        self.stdout.write(_table((HEADERS, *rows)) if rows else "No orphans.")
        if problems:
            raise CommandError("\n".join(problems))


def _row(entry: str, orphan: Orphan, now: datetime) -> tuple[str, ...]:
    age = now - datetime.fromisoformat(orphan.created_at)
    owner = f"{orphan.namespace}/{orphan.name}"
    return entry, orphan.provider_id, owner, f"{int(age.total_seconds())}s", orphan.action, orphan.message


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)

"""Makes an API token and prints it, once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from leasing.access import create_token
from leasing.tokens import Scope


class Command(BaseCommand):
    help = "Make an API token. It is printed to standard output, and can't be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="who or what will use it; leases keep this name")
        parser.add_argument(
            "--scope", action="append", required=True, choices=[scope.value for scope in Scope], help="may be repeated"
        )
        parser.add_argument("--expires-days", type=int, help="days until it expires; never, when left out")
        parser.add_argument(
            "--rate",
            type=int,
            help="requests a second that it may make of each web process; "
            "what PROXYFLEET_TOKEN_RATE_LIMIT says, when left out",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        now = timezone.now()
        days = options["expires_days"]
        try:
            token = create_token(
                options["name"],
                [Scope(scope) for scope in options["scope"]],
                created_by="create_token",
                now=now,
                expires_at=now + timedelta(days=days) if days is not None else None,
                requests_per_second=options["rate"],
            )
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from None
        self.stdout.write(token.secret)

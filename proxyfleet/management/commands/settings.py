"""``manage.py settings``: every ``PROXYFLEET_*`` variable as this process reads it."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from django.core.management.base import BaseCommand
from pydantic import AnyHttpUrl, SecretStr
from pydantic.fields import FieldInfo

from proxyfleet.conf import ENV_PREFIX, Settings, settings

KINDS = {
    tuple: "list",
    SecretStr: "secret",
    AnyHttpUrl: "URL",
    Path: "path",
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
}


class Command(BaseCommand):
    help = "List the settings: what each is for, its default, and its value now. Secrets are masked."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--markdown", action="store_true", help="as docs/settings.md, without any value of now")

    def handle(self, *, markdown: bool = False, **_options: Any) -> None:
        if markdown:
            self.stdout.write(as_markdown(), ending="")
            return
        for name, field in Settings.model_fields.items():
            self.stdout.write(f"{ENV_PREFIX}{name.upper()}={_written(getattr(settings(), name))}")
            self.stdout.write(f"    {field.description} ({_kind(field)}; {_default(field)})\n\n")


HEADING = """\
# Settings

Every setting is an environment variable. A missing or bad one stops the start and is named. An empty one counts as
unset. Durations are in seconds. `manage.py settings` shows the values that a process sees, with the secrets masked.

Made from `proxyfleet/conf.py` by `make docs`.

| variable | | |
|---|---|---|
"""


def as_markdown() -> str:
    """The table of docs/settings.md."""
    rows = [
        f"| `{ENV_PREFIX}{name.upper()}` | {_kind(field)}; {_default(field, quote='`')} | {_escaped(field)} |\n"
        for name, field in Settings.model_fields.items()
    ]
    return HEADING + "".join(rows)


def _escaped(field: FieldInfo) -> str:
    return (field.description or "").replace("|", r"\|").replace("*", r"\*")


def _written(value: Any) -> str:
    """As it stands in the environment; asterisks for a secret."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return ",".join(str(part) for part in value)
        case _:
            return str(value)


def _kind(field: FieldInfo) -> str:
    types = set(_types(field.annotation))
    return next(kind for type_, kind in KINDS.items() if type_ in types)


def _types(annotation: Any) -> Iterator[Any]:
    """All that it is made of: a path may be ``Annotated[Path, …] | None``."""
    yield annotation
    yield get_origin(annotation)
    for part in get_args(annotation):
        yield from _types(part)


def _default(field: FieldInfo, quote: str = "") -> str:
    if field.is_required():
        return "required"
    return f"default {quote}{_written(field.default)}{quote}" if field.default is not None else "no default"

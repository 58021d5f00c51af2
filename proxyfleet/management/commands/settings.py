"""``manage.py settings``: every ``PROXYFLEET_*`` variable as this process reads it."""

from __future__ import annotations

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

    def handle(self, **_options: Any) -> None:
        for name, field in Settings.model_fields.items():
            self.stdout.write(f"{ENV_PREFIX}{name.upper()}={_written(getattr(settings(), name))}")
            self.stdout.write(f"    {field.description} ({_kind(field)}; {_default(field)})\n\n")


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


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return f"default {_written(field.default)}" if field.default is not None else "no default"
